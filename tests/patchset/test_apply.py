"""Apply and revert: all, or nothing; what was there comes back as it was."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ddtree_ops_cli.errors import LockHeld, PatchMismatch
from ddtree_ops_cli.patchset.apply import Outcome, apply, revert
from ddtree_ops_cli.patchset.journal import Store, exclusive, write_new
from ddtree_ops_cli.patchset.manifest import PatchSet
from ddtree_ops_cli.patchset.target import Installation, locate
from ddtree_ops_cli.patchset.verify import Survey, survey
from tests.patchset.sample import (
    ADDED,
    ARGS,
    DIST_INFO,
    MODULES,
    PATCHED,
    PROJECT,
    RECORD,
    SPEC,
    STORE,
    VERSION,
    WORKER,
    Sample,
    fingerprint,
    write_patches,
    write_tree,
)


def put(sample: Sample, *, dry_run: bool = False) -> Outcome:
    return apply(sample.tree, sample.patches, dry_run=dry_run)


def back(sample: Sample, *, dry_run: bool = False) -> Outcome:
    return revert(sample.tree, sample.patches, dry_run=dry_run)


def look(sample: Sample) -> Survey:
    return survey(sample.tree, sample.patches)


def installation(sample: Sample) -> Installation:
    found = locate(sample.tree)
    assert isinstance(found, Installation)
    return found


def test_apply_makes_every_file_what_the_set_says(sample: Sample) -> None:
    expected = PatchSet.load(VERSION, sample.patches).contents(sample.read)
    outcome = put(sample)
    assert (outcome.changed, outcome.recovered, outcome.version) == (True, False, VERSION)
    assert sorted(outcome.files) == sorted((*PATCHED, *ADDED))
    assert {path: sample.read(path) for path in expected} == expected
    here = look(sample)
    assert (here.state, here.applied_hash) == ("applied", outcome.set_hash)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_revert_leaves_every_file_as_it_was_inode_and_time_included(
    sample: Sample, end: str
) -> None:
    shutil.rmtree(sample.tree)
    write_tree(sample.tree, end=end)
    before = fingerprint(sample.tree, inodes=True)
    put(sample)
    assert fingerprint(sample.tree, inodes=True) != before
    outcome = back(sample)
    assert outcome.changed
    assert fingerprint(sample.tree, inodes=True) == before
    assert look(sample).state == "unpatched"


def test_twice_applied_is_once_applied(sample: Sample) -> None:
    put(sample)
    once = fingerprint(sample.tree, inodes=True)
    again = put(sample)
    assert (again.changed, again.files) == (False, ())
    assert fingerprint(sample.tree, inodes=True) == once


def test_twice_reverted_is_once_reverted(sample: Sample) -> None:
    before = fingerprint(sample.tree, inodes=True)
    assert not back(sample).changed
    put(sample)
    assert back(sample).changed
    assert not back(sample).changed
    assert fingerprint(sample.tree, inodes=True) == before


def test_a_dry_run_changes_nothing_and_says_what_it_would_do(sample: Sample) -> None:
    before = fingerprint(sample.tree, inodes=True)
    dry = put(sample, dry_run=True)
    assert fingerprint(sample.tree, inodes=True) == before
    assert put(sample) == dry
    applied = fingerprint(sample.tree, inodes=True)
    dry = back(sample, dry_run=True)
    assert fingerprint(sample.tree, inodes=True) == applied
    assert back(sample) == dry


def test_modes_and_owners_are_kept(sample: Sample) -> None:
    if os.geteuid() == 0:
        for place in (sample.tree, *sample.tree.rglob("*")):
            os.chown(place, 1234, 1234)
    (sample.tree / MODULES).parent.chmod(0o775)
    before = {path: (sample.tree / path).stat() for path in PATCHED}
    put(sample)
    for path, facts in before.items():
        now = (sample.tree / path).stat()
        assert (now.st_mode, now.st_uid, now.st_gid) == (
            facts.st_mode,
            facts.st_uid,
            facts.st_gid,
        )
    for path in (*ADDED, MODULES, f"{MODULES}/kernels"):
        now = (sample.tree / path).stat()
        assert oct(now.st_mode & 0o777) == ("0o644" if path.endswith(".py") else "0o775")
        assert now.st_uid == before[ARGS].st_uid


def test_the_copy_that_an_installer_shares_by_hard_links_is_untouched(
    sample: Sample, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(sample.tree, cache, copy_function=os.link)
    before, shared = fingerprint(cache), fingerprint(sample.tree, inodes=True)
    put(sample)
    assert fingerprint(cache) == before
    assert not (cache / ARGS).samefile(sample.tree / ARGS)
    back(sample)
    assert fingerprint(cache) == before
    assert fingerprint(sample.tree, inodes=True) == shared


@pytest.mark.parametrize("relative", [False, True])
def test_the_copy_that_an_installer_shares_by_symbolic_links_is_untouched(
    sample: Sample, tmp_path: Path, relative: bool
) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(sample.tree, cache)
    for path in PATCHED:
        place = sample.tree / path
        place.unlink()
        aim = os.path.relpath(cache / path, place.parent) if relative else cache / path
        place.symlink_to(aim)
    links, before = fingerprint(sample.tree, inodes=True), fingerprint(cache, inodes=True)
    put(sample)
    assert not any((sample.tree / path).is_symlink() for path in PATCHED)
    assert look(sample).state == "applied"
    assert fingerprint(cache, inodes=True) == before
    back(sample)
    assert fingerprint(sample.tree, inodes=True) == links


def test_a_file_system_without_hard_links_is_served(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    before = fingerprint(sample.tree)
    monkeypatch.setattr(os, "link", refused)
    put(sample)
    back(sample)
    assert fingerprint(sample.tree) == before


def test_compiled_caches_of_changed_files_go_and_others_stay(sample: Sample) -> None:
    def caches() -> list[str]:
        return sorted(place.name for place in sample.tree.rglob("*.pyc"))

    # A cache that claims to be valid whatever the source says.
    compiled = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*compiled, str(sample.tree / "sglang")], check=True)
    every = caches()
    assert len(every) == 7
    put(sample)
    tag = sys.implementation.cache_tag
    gone = {f"{Path(path).stem}.{tag}.pyc" for path in PATCHED}
    assert caches() == [name for name in every if name not in gone]
    subprocess.run([*compiled, str(sample.tree / "sglang")], check=True)
    back(sample)
    assert caches() == [name for name in every if name not in gone]
    assert not (sample.tree / MODULES).exists()


def test_caches_made_while_patched_leave_nothing_behind(sample: Sample) -> None:
    before = fingerprint(sample.tree, inodes=True)
    put(sample)
    for path in (*PATCHED, *ADDED):
        subprocess.run([sys.executable, "-m", "py_compile", sample.tree / path], check=path != SPEC)
    back(sample)
    assert fingerprint(sample.tree, inodes=True) == before


def test_caches_left_where_the_modules_go_do_not_hinder(sample: Sample) -> None:
    sample.add(f"{MODULES}/__pycache__/tree.cpython-310.pyc")
    assert look(sample).state == "unpatched"
    put(sample)
    assert look(sample).state == "applied"


def test_the_record_matches_the_files_while_applied(sample: Sample) -> None:
    put(sample)
    with (sample.tree / RECORD).open(newline="") as file:
        rows = {path: (digest, size) for path, digest, size in csv.reader(file)}
    there = {
        place.relative_to(sample.tree).as_posix()
        for place in sample.tree.rglob("*")
        if place.is_file()
    }
    assert set(rows) == there
    for path, (digest, size) in rows.items():
        content = sample.read(path)
        found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if path not in (RECORD, f"{STORE}/applied.json"):
            assert (digest, size) == (f"sha256={found}", str(len(content)))


def test_an_installation_without_a_record_is_served(sample: Sample) -> None:
    (sample.tree / RECORD).unlink()
    before = fingerprint(sample.tree, inodes=True)
    put(sample)
    assert look(sample).state == "applied"
    back(sample)
    assert fingerprint(sample.tree, inodes=True) == before


def test_the_set_of_another_ddtree_is_replaced(sample: Sample, tmp_path: Path) -> None:
    before = fingerprint(sample.tree, inodes=True)
    old = put(sample)
    newer = write_patches(tmp_path / "newer", modules={"tree.py": b"x = 2\n"})
    here = survey(sample.tree, newer)
    assert (here.state, here.applied_hash) == ("other patch set", old.set_hash)
    new = apply(sample.tree, newer)
    assert new.changed
    assert new.set_hash != old.set_hash
    assert survey(sample.tree, newer).state == "applied"
    assert not (sample.tree / MODULES / "kernels").exists()
    revert(sample.tree, newer)
    assert fingerprint(sample.tree, inodes=True) == before


def test_revert_needs_no_patch_set(sample: Sample, tmp_path: Path) -> None:
    before = fingerprint(sample.tree, inodes=True)
    put(sample)
    (tmp_path / "empty").mkdir()
    assert survey(sample.tree, tmp_path / "empty").state == "other version"
    revert(sample.tree, tmp_path / "empty")
    assert fingerprint(sample.tree, inodes=True) == before


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


def test_only_one_run_at_a_time(sample: Sample) -> None:
    with exclusive(installation(sample)):
        for attempt in (put, back):
            with pytest.raises(LockHeld, match="another apply or revert is running"):
                attempt(sample)
    put(sample)


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


@pytest.mark.parametrize("folder", ["sglang/srt/speculative", "sglang/srt", DIST_INFO])
def test_no_permission_is_one_line_and_nothing_changes(
    tmp_path: Path, sample: Sample, folder: str
) -> None:
    for place in (tmp_path, *list(tmp_path.parents)[:2]):
        place.chmod(0o755)  # pytest's own folders are for their owner only
    for place in (sample.tree, *sample.tree.rglob("*")):
        place.chmod(0o777)
    (sample.tree / folder).chmod(0o555)
    before = fingerprint(sample.tree)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(sample.tree), str(sample.patches)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    place = sample.tree / folder
    assert done.stderr.startswith(f"1 {place}: no permission to write in it; run as the owner")
    assert fingerprint(sample.tree) == before
