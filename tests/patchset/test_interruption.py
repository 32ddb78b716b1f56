"""Whatever moment a run dies at, the next apply or revert leaves no trace of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddtree_ops_cli.errors import PatchMismatch
from ddtree_ops_cli.patchset.apply import apply, revert
from ddtree_ops_cli.patchset.journal import exclusive
from ddtree_ops_cli.patchset.target import Installation, locate
from ddtree_ops_cli.patchset.verify import survey
from tests.patchset.sample import (
    MODULES,
    PROJECT,
    RECORD,
    STORE,
    WORKER,
    Sample,
    fingerprint,
    write_tree,
)

DYING = Path(__file__).parent / "dying.py"


def deaths(how: str, sample: Sample, work: Path, first: str, second: str) -> int:
    work.mkdir()
    done = subprocess.run(
        [sys.executable, str(DYING), how, str(sample.patches), str(work), first, second],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("second", ["apply", "revert"])
@pytest.mark.parametrize(("first", "least"), [("apply", 40), ("revert", 12), ("recover", 12)])
def test_killed_before_any_change_of_the_disk(
    sample: Sample, tmp_path: Path, first: str, second: str, least: int
) -> None:
    assert deaths("kill", sample, tmp_path / "work", first, second) >= least


@pytest.mark.parametrize("second", ["apply", "revert"])
def test_killed_in_the_middle_of_a_write(sample: Sample, tmp_path: Path, second: str) -> None:
    assert deaths("torn", sample, tmp_path / "work", "apply", second) >= 10


def test_a_full_disk_at_any_size_changes_nothing(sample: Sample, tmp_path: Path) -> None:
    assert deaths("full", sample, tmp_path / "work", "apply", "apply") >= 10


def test_a_full_disk_does_not_stop_a_revert(sample: Sample, tmp_path: Path) -> None:
    assert deaths("full", sample, tmp_path / "work", "revert", "revert") == 0


SMALL_DISK = """
set -e
mount -t tmpfs -o size=256k tmpfs "$1"
cp -a "$2" "$1/tree"
dd if=/dev/zero of="$1/ballast" bs=1k 2>/dev/null || true
"$3" -m ddtree_ops_cli patch apply "$1/tree" --patches "$4" && exit 90
diff -r "$2" "$1/tree"
rm "$1/ballast"
"$3" -m ddtree_ops_cli patch apply "$1/tree" --patches "$4"
dd if=/dev/zero of="$1/ballast" bs=1k 2>/dev/null || true
"$3" -m ddtree_ops_cli patch revert "$1/tree" --patches "$4"
diff -r "$2" "$1/tree"
"""


def _can_mount() -> bool:
    tool = shutil.which("unshare")
    if tool is None:
        return False
    command = [tool, "--mount", "--map-root-user", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(not _can_mount(), reason="no mount namespace for an ordinary user here")
def test_a_disk_that_is_full_indeed(sample: Sample, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    places = (tmp_path / "disk", sample.tree, sys.executable, sample.patches)
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", SMALL_DISK, "sh", *places],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No space left on device; nothing was changed" in done.stderr


def interrupt(sample: Sample) -> None:
    """As if the process had died before the very last rename of an apply."""
    apply(sample.tree, sample.patches)
    store = sample.tree / STORE
    (store / "applied.json").rename(store / "journal.json")
    assert survey(sample.tree, sample.patches).state == "interrupted"


def test_recovery_is_reported(sample: Sample) -> None:
    interrupt(sample)
    dry = apply(sample.tree, sample.patches, dry_run=True)
    assert (dry.changed, dry.recovered) == (True, True)
    assert survey(sample.tree, sample.patches).state == "interrupted"
    assert apply(sample.tree, sample.patches) == dry
    assert not apply(sample.tree, sample.patches).recovered


def test_recovery_needs_no_patch_set(sample: Sample, tmp_path: Path) -> None:
    before = fingerprint(sample.tree, inodes=True)
    interrupt(sample)
    (tmp_path / "empty").mkdir()
    assert revert(sample.tree, tmp_path / "empty").changed
    assert fingerprint(sample.tree, inodes=True) == before


def test_an_edit_after_an_interruption_is_refused_by_name(sample: Sample) -> None:
    interrupt(sample)
    sample.write(WORKER, b"# mine\n")
    before = fingerprint(sample.tree, inodes=True)
    for attempt in (apply, revert):
        with pytest.raises(PatchMismatch, match=rf"by other hands: {WORKER} \(edited\)"):
            attempt(sample.tree, sample.patches)
    assert fingerprint(sample.tree, inodes=True) == before


def test_a_reinstall_over_an_interruption_is_clean_after_the_next_run(sample: Sample) -> None:
    """The installer does not know the store, restores its files and writes a RECORD anew."""
    interrupt(sample)
    shutil.rmtree(sample.tree / MODULES)
    write_tree(sample.tree)
    with (sample.tree / RECORD).open("ab") as file:
        file.write(b"sglang-0.5.17.dist-info/INSTALLER,,\n")
    record = sample.read(RECORD)
    assert survey(sample.tree, sample.patches).state == "interrupted"
    revert(sample.tree, sample.patches)
    assert survey(sample.tree, sample.patches).state == "unpatched"
    assert sample.read(RECORD) == record
    assert not (sample.tree / STORE).exists()


def test_a_run_under_way_is_not_called_dead(sample: Sample) -> None:
    interrupt(sample)
    found = locate(sample.tree)
    assert isinstance(found, Installation)
    with exclusive(found):
        assert "is running now" in survey(sample.tree, sample.patches).detail
    assert "the next one recovers" in survey(sample.tree, sample.patches).detail
