"""What apply and revert refuse, by name, and leave as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ddtree_ops_cli.errors import LockHeld, PatchMismatch
from ddtree_ops_cli.patchset.journal import Store, exclusive, write_new
from ddtree_ops_cli.patchset.manifest import PatchSet
from tests.patchset.sample import (
    ADDED,
    ARGS,
    DIST_INFO,
    MODULES,
    PATCHED,
    PROJECT,
    RECORD,
    VERSION,
    WORKER,
    Sample,
    back,
    fingerprint,
    installation,
    look,
    put,
)


def _edit(path: str) -> Callable[[Sample], None]:
    return lambda sample: sample.write(path, b"# mine\n")


def _remove(path: str) -> Callable[[Sample], None]:
    return lambda sample: (sample.tree / path).unlink()


def _add(path: str) -> Callable[[Sample], None]:
    def add(sample: Sample) -> None:
        sample.add(path)

    return add


def _folder(path: str) -> Callable[[Sample], None]:
    def replace(sample: Sample) -> None:
        (sample.tree / path).unlink()
        (sample.tree / path).mkdir()

    return replace


SPOILS = [
    (_edit(ARGS), f"{ARGS} (edited)"),
    (_remove(WORKER), f"{WORKER} (missing)"),
    (_folder(WORKER), f"{WORKER} (edited)"),
    (_add(f"{MODULES}/own.py"), f"{MODULES}/own.py (unexpected)"),
]


@pytest.mark.parametrize(("spoil", "named"), SPOILS)
def test_a_foreign_edit_before_apply_is_refused_by_name(
    sample: Sample, spoil: Callable[[Sample], None], named: str
) -> None:
    spoil(sample)
    before = fingerprint(sample.tree, inodes=True)
    assert look(sample).state == "foreign edits"
    for attempt in (put, back):
        with pytest.raises(PatchMismatch) as caught:
            attempt(sample)
        assert named in str(caught.value)
        assert "sglang==0.5.17` gives a clean one" in str(caught.value)
    assert fingerprint(sample.tree, inodes=True) == before


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        *SPOILS,
        (_edit(f"{MODULES}/tree.py"), f"{MODULES}/tree.py (edited)"),
        (_edit(RECORD), f"{RECORD} (edited)"),
    ],
)
def test_a_foreign_edit_after_apply_is_refused_by_name(
    sample: Sample, spoil: Callable[[Sample], None], named: str
) -> None:
    put(sample)
    spoil(sample)
    before = fingerprint(sample.tree, inodes=True)
    assert look(sample).state == "foreign edits"
    for attempt in (put, back):
        with pytest.raises(PatchMismatch) as caught:
            attempt(sample)
        assert named in str(caught.value)
    assert fingerprint(sample.tree, inodes=True) == before


def test_all_edited_files_are_named_at_once(sample: Sample) -> None:
    for path in PATCHED:
        sample.write(path, b"# mine\n")
    with pytest.raises(PatchMismatch) as caught:
        put(sample)
    assert all(f"{path} (edited)" in str(caught.value) for path in PATCHED)


def test_an_unknown_version_names_itself_and_the_known(sample: Sample) -> None:
    sample.write(f"{DIST_INFO}/METADATA", b"Name: sglang\nVersion: 0.5.18\n\nVersion: 0.5.17\n")
    assert look(sample).state == "other version"
    with pytest.raises(PatchMismatch, match=r"SGLang 0\.5\.18 has no patch set; known: 0\.5\.17$"):
        put(sample)
    assert not back(sample).changed


def test_a_half_patched_tree_is_told_and_refused(sample: Sample) -> None:
    after = PatchSet.load(VERSION, sample.patches).contents(sample.read)
    sample.write(WORKER, after[WORKER])
    here = look(sample)
    assert here.state == "partial"
    assert here.named("patched") == [WORKER]
    with pytest.raises(PatchMismatch, match=rf"half-patched; patched: {WORKER}; not patched: "):
        put(sample)
    with pytest.raises(PatchMismatch, match="nothing to go back to: patched: "):
        back(sample)


def test_a_file_between_two_patches_is_half_patched_and_not_foreign(sample: Sample) -> None:
    sample.write(ARGS, sample.read(ARGS).replace(b"= None\n", b"= None\n    budget = 16\n"))
    here = look(sample)
    assert (here.state, here.named("half-patched")) == ("partial", [ARGS])


def test_a_tree_patched_by_other_means_is_not_called_applied(sample: Sample) -> None:
    for path, content in PatchSet.load(VERSION, sample.patches).contents(sample.read).items():
        sample.add(path, content)
    here = look(sample)
    assert here.state == "partial"
    assert "originals were not kept" in here.detail


def test_a_file_restored_by_hand_is_half_patched_and_revert_mends_it(sample: Sample) -> None:
    before, content = fingerprint(sample.tree), sample.read(WORKER)
    put(sample)
    sample.write(WORKER, content)
    assert look(sample).state == "partial"
    with pytest.raises(PatchMismatch, match=r"half-patched; .*`ddtree patch revert` restores"):
        put(sample)
    back(sample)
    assert fingerprint(sample.tree) == before


@pytest.mark.parametrize("change", ["edited", "removed"])
def test_a_lost_original_is_told_before_anything_changes(sample: Sample, change: str) -> None:
    put(sample)
    kept = Store.of(installation(sample)).original(WORKER)
    kept.unlink()
    if change == "edited":
        kept.write_bytes(b"other\n")
    before = fingerprint(sample.tree, inodes=True)
    with pytest.raises(PatchMismatch, match=f"original is lost or changed: {WORKER}; `pip"):
        back(sample)
    assert fingerprint(sample.tree, inodes=True) == before


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "entries": [], "modules": "../x"}']
)
def test_a_journal_that_makes_no_sense_is_refused(sample: Sample, text: str) -> None:
    put(sample)
    Store.of(installation(sample)).applied.write_text(text)
    for attempt in (put, back):
        with pytest.raises(PatchMismatch, match=r"applied\.json: not a journal .*; reinstall"):
            attempt(sample)


def test_kept_originals_without_a_journal_are_never_thrown_away(sample: Sample) -> None:
    put(sample)
    Store.of(installation(sample)).applied.unlink()
    before = fingerprint(sample.tree, inodes=True)
    with pytest.raises(PatchMismatch):
        back(sample)
    assert fingerprint(sample.tree, inodes=True) == before


def test_a_folder_behind_a_link_is_refused(sample: Sample, tmp_path: Path) -> None:
    folder = sample.tree / "sglang/srt/speculative"
    folder.rename(tmp_path / "shared")
    folder.symlink_to(tmp_path / "shared")
    before = fingerprint(tmp_path / "shared", inodes=True)
    with pytest.raises(PatchMismatch, match="sglang/srt/speculative is a link that leads out"):
        put(sample)
    assert fingerprint(tmp_path / "shared", inodes=True) == before


@pytest.mark.parametrize("bad", [b"return width", b"def build"])
def test_what_the_disk_does_not_give_back_is_undone(
    sample: Sample, monkeypatch: pytest.MonkeyPatch, bad: bytes
) -> None:
    def forgetful(path: Path, content: bytes, mode: int) -> None:
        write_new(path, content.replace(bad, b"?"), mode)

    before = fingerprint(sample.tree, inodes=True)
    monkeypatch.setattr("ddtree_ops_cli.patchset.steps.write_new", forgetful)
    with pytest.raises(PatchMismatch, match="written, and read back otherwise: sglang/srt/spec"):
        put(sample)
    assert fingerprint(sample.tree, inodes=True) == before


def test_ctrl_c_at_any_file_changes_nothing(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(sample.tree, inodes=True)
    for number in range(len(PATCHED) + len(ADDED) + 2):
        stops = iter([*number * [False], True])

        def stopped(path: Path, content: bytes, mode: int, stops: Iterator[bool] = stops) -> None:
            if next(stops):
                raise KeyboardInterrupt
            write_new(path, content, mode)

        for module in ("steps", "journal"):
            monkeypatch.setattr(f"ddtree_ops_cli.patchset.{module}.write_new", stopped)
        with pytest.raises(KeyboardInterrupt):
            put(sample)
        assert fingerprint(sample.tree, inodes=True) == before


def test_only_one_run_at_a_time(sample: Sample) -> None:
    with exclusive(installation(sample)):
        for attempt in (put, back):
            with pytest.raises(LockHeld, match="another apply or revert is running"):
                attempt(sample)
    put(sample)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody can enter: pytest's own are for their owner, also in other runs."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


AS_NOBODY = """
import os, sys
from pathlib import Path
from ddtree_ops_cli.errors import DdtreeError
from ddtree_ops_cli.patchset.apply import apply
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    apply(Path(sys.argv[1]), Path(sys.argv[2]))
except DdtreeError as error:
    sys.exit(f"{error.exit_code} {error}")
"""


@pytest.mark.parametrize(
    ("folder", "mode", "says"),
    [
        ("sglang/srt/speculative", 0o555, "1 {}: no permission to write in it; run as the owner"),
        ("sglang/srt", 0o555, "1 {}: no permission to write in it; run as the owner"),
        (DIST_INFO, 0o555, "1 {}: no permission to write in it; run as the owner"),
        (DIST_INFO, 0o333, "1 {}: cannot be read: Permission denied"),
        (DIST_INFO, 0o000, "1 {}/METADATA: cannot be read: Permission denied"),
        ("sglang/srt", 0o000, "1 {}/server_args.py: cannot be read: Permission denied"),
        (".", 0o000, "1 {}/sglang: cannot be read: Permission denied"),
    ],
)
def test_no_permission_is_one_line_and_nothing_changes(
    public: Path, sample: Sample, folder: str, mode: int, says: str
) -> None:
    tree, patches = public / "tree", public / "patches"
    shutil.copytree(sample.tree, tree)
    shutil.copytree(sample.patches, patches)
    for place in (tree, *tree.rglob("*")):
        place.chmod(0o777)
    before = fingerprint(tree)
    (tree / folder).chmod(mode)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(tree), str(patches)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    (tree / folder).chmod(0o777)
    assert done.stderr.startswith(says.format(tree / folder))
    assert done.stderr.count("\n") == 1
    assert fingerprint(tree) == before
