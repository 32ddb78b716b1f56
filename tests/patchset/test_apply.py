"""Apply and revert: all, or nothing; what was there comes back as it was."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddtree_ops_cli.patchset.apply import apply, revert
from ddtree_ops_cli.patchset.manifest import PatchSet
from ddtree_ops_cli.patchset.verify import survey
from tests.patchset.sample import (
    ADDED,
    ARGS,
    MODULES,
    PATCHED,
    RECORD,
    SPEC,
    STORE,
    VERSION,
    Fingerprint,
    Sample,
    back,
    fingerprint,
    look,
    put,
    write_patches,
    write_tree,
)


def test_apply_makes_every_file_what_the_set_says(sample: Sample) -> None:
    expected = PatchSet.load(VERSION, sample.patches).contents(sample.read)
    outcome = put(sample)
    assert (outcome.changed, outcome.recovered, outcome.version) == (True, False, VERSION)
    assert sorted(outcome.files[:-2]) == sorted((*PATCHED, *ADDED))
    assert outcome.files[-2:] == (RECORD, f"{STORE}/")
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
    assert touched(before, applied) == set(dry.files)
    dry = back(sample, dry_run=True)
    assert fingerprint(sample.tree, inodes=True) == applied
    assert back(sample) == dry
    assert touched(applied, before) == set(dry.files)


def touched(before: Fingerprint, after: Fingerprint) -> set[str]:
    """The files that differ; what is in the store counts as the store."""
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    files = {path for path in changed if Path(path).suffix or path.startswith(RECORD)}
    return {f"{STORE}/" if path.startswith(STORE) else path for path in files}


def test_a_dry_run_over_another_set_names_the_modules_that_go(
    sample: Sample, tmp_path: Path
) -> None:
    put(sample)
    before = fingerprint(sample.tree, inodes=True)
    newer = write_patches(tmp_path / "newer", modules={"tree.py": b"x = 2\n"})
    dry = apply(sample.tree, newer, dry_run=True)
    assert f"{MODULES}/kernels/__init__.py" in dry.files
    assert fingerprint(sample.tree, inodes=True) == before
    assert apply(sample.tree, newer) == dry


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
    for place in (sample.tree / STORE, *(sample.tree / STORE).iterdir()):
        assert not place.is_dir() or place.stat().st_uid == before[ARGS].st_uid


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
