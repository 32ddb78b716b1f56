"""The steps that change a target: stage, swap, undo. Each may be the last before a power cut.

No file is written in place: installers share files between environments by hard or symbolic
links, and the other environment's copy must not change. A new file is staged on the same file
system and renamed over the old one, which stays in the store; undoing renames it back, so that
mode, owner, time and links come back too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from ..errors import DdtreeError, PatchMismatch
from .journal import Entry, Journal, Store, sync, write_new
from .manifest import PatchSet, sha256
from .record import rewritten
from .target import Installation
from .verify import CACHE, examine


def perform(installation: Installation, patch_set: PatchSet, contents: Mapping[str, bytes]) -> None:
    """Put `contents` (by path, as `PatchSet.contents` gives them) into an unpatched installation.

    After an error nothing is changed; DdtreeError says so where the disk is at fault.
    """
    store = Store.of(installation)
    try:
        _swap(installation, store, _stage(installation, store, patch_set, contents))
    except BaseException as error:
        try:
            undo(installation)
        except (OSError, DdtreeError) as second:
            raise DdtreeError(
                f"did not end ({error}), and cannot be undone now: {second}",
                where=str(installation.site),
                mend="the next `ddtree patch apply` or `revert` continues",
            ) from error
        if isinstance(error, OSError):
            raise DdtreeError(
                f"cannot write: {error.strerror or error}; nothing was changed",
                where=str(error.filename or installation.site),
            ) from error
        raise


def undo(installation: Installation) -> None:
    """Make the installation what it was before the set was applied, or half applied.

    Needs no space on the disk. PatchMismatch before the first change, if an original that is
    needed is gone. Foreign edits are lost: the caller has seen that there are none.
    """
    store = Store.of(installation)
    journal = store.read()
    if journal is None:
        # The journal comes first and goes last: without it, nothing else has been done.
        if store.holds_originals:
            raise PatchMismatch("its journal is gone", where=str(store.folder))
        if store.folder.exists():
            store.discard()
        return
    entries = originals_wanted(installation, journal)
    if store.applied.exists():
        store.applied.replace(store.begun)
        sync(store.folder)
    for entry in entries:
        if entry != journal.record:
            store.original(entry.path).replace(installation.place(entry.path))
    _remove_modules(installation, store, journal)
    # Last here and first in `_swap`: as long as there are new files, it lists them.
    if journal.record in entries:
        store.original(journal.record.path).replace(installation.place(journal.record.path))
    _settle(installation, journal, ("original", "absent"))
    store.discard()


def originals_wanted(installation: Installation, journal: Journal) -> list[Entry]:
    """The entries whose originals must come back; PatchMismatch if one is not as it was kept."""
    store = Store.of(installation)
    states = {finding.path: finding.state for finding in examine(installation, journal)}
    wanted = [e for e in journal.entries if e.before is not None and states[e.path] != "original"]
    lost = []
    for entry in wanted:
        try:
            kept = sha256(store.read_original(entry.path, installation.place(entry.path)))
        except OSError:
            kept = None
        if kept != entry.before:
            lost.append(entry.path)
    if lost:
        raise PatchMismatch(
            f"the kept original is lost or changed: {', '.join(lost)}",
            where=str(store.folder),
            mend=reinstall(installation),
        )
    return wanted


def reinstall(installation: Installation) -> str:
    command = f"pip install --force-reinstall --no-deps sglang=={installation.version}"
    return f"`{command}` gives a clean one"


def _stage(
    installation: Installation,
    store: Store,
    patch_set: PatchSet,
    contents: Mapping[str, bytes],
) -> Journal:
    manifest = patch_set.manifest
    originals = {path: installation.place(path).read_bytes() for path in manifest.changes}
    after = dict(contents)
    record = installation.dist_info / "RECORD"
    if record.exists():  # a distribution's own package may lack it
        path = installation.relative(record)
        originals[path] = record.read_bytes()
        kept = {installation.relative(store.original(p)): old for p, old in originals.items()}
        listed = {**contents, **kept, installation.relative(store.applied): None}
        after[path] = rewritten(originals[path], listed)
    journal = Journal(
        installation.version,
        patch_set.set_hash,
        manifest.modules.target,
        tuple(
            Entry(path, sha256(originals[path]) if path in originals else None, sha256(content))
            for path, content in after.items()
        ),
    )
    _make_folder(store.folder, like=installation.dist_info)
    store.write(journal)
    for part in (store.folder / "originals", store.staged):
        _make_folder(part, like=installation.dist_info)
    for path in originals:
        place = installation.place(path)
        _keep(place, store.original(path))
        _write(_staged(store, path), after[path], like=place)
    folder = installation.place(manifest.modules.target)
    for path in manifest.additions:
        inside = installation.place(path).relative_to(folder)
        staged = store.new_modules / inside
        for parent in [*reversed(inside.parents)]:
            _make_folder(store.new_modules / parent, like=folder.parent)
        _write(staged, after[path], like=installation.dist_info / "METADATA")
    for made in (store.staged, *store.staged.rglob("*"), store.folder / "originals", store.folder):
        if made.is_dir():
            sync(made)
    return journal


def _swap(installation: Installation, store: Store, journal: Journal) -> None:
    if journal.record:
        _put(installation, store, journal.record)
    # Before the files that import it.
    if store.new_modules.exists():
        folder = installation.place(journal.modules)
        if folder.exists():  # compiled caches of another day: the survey saw nothing else
            shutil.rmtree(folder)
        store.new_modules.replace(folder)
    for entry in journal.changed:
        _put(installation, store, entry)
    _settle(installation, journal, ("patched",))
    shutil.rmtree(store.staged)
    store.begun.replace(store.applied)
    sync(store.folder)


def _put(installation: Installation, store: Store, entry: Entry) -> None:
    _staged(store, entry.path).replace(installation.place(entry.path))


def _remove_modules(installation: Installation, store: Store, journal: Journal) -> None:
    folder = installation.place(journal.modules)
    if not folder.exists():
        return
    # Out of the way in one step: half a package must never be importable.
    removed = store.folder / "removed"
    if removed.exists():
        shutil.rmtree(removed)
    try:
        folder.replace(removed)
    except OSError as error:
        # A container cannot rename a folder of its image.
        if error.errno != errno.EXDEV:
            raise
        shutil.rmtree(folder)


def _settle(installation: Installation, journal: Journal, expected: Iterable[str]) -> None:
    """Drop what was compiled from the old files, flush the names, and check every hash again."""
    folders = set()
    for entry in journal.entries:
        place = installation.place(entry.path)
        folders.add(place.parent)
        cache = place.parent / CACHE
        for compiled in cache.glob(f"{place.stem}.*.pyc"):
            compiled.unlink()
        if cache.is_dir() and not any(cache.iterdir()):
            cache.rmdir()
    for folder in sorted(folders | {installation.place(journal.modules).parent}):
        if folder.exists():
            sync(folder)
    wrong = [f.path for f in examine(installation, journal) if f.state not in expected]
    if wrong:
        raise PatchMismatch(
            f"written, and read back otherwise: {', '.join(wrong)}", where=str(installation.site)
        )


def _keep(place: Path, kept: Path) -> None:
    try:
        os.link(place, kept, follow_symlinks=False)
    except OSError:  # another owner's file, or a file system without hard links
        shutil.copy2(place, kept, follow_symlinks=False)


def _staged(store: Store, path: str) -> Path:
    return store.staged / quote(path, safe="")


def _make_folder(folder: Path, *, like: Path) -> None:
    if not folder.exists():
        folder.mkdir()
        folder.chmod(stat.S_IMODE(like.stat().st_mode))
        _give(folder, like)


def _write(path: Path, content: bytes, *, like: Path) -> None:
    write_new(path, content, stat.S_IMODE(like.stat().st_mode))
    _give(path, like)


def _give(path: Path, like: Path) -> None:
    """Root gives new files to the owner of their neighbours; others own both or may not."""
    if os.geteuid() == 0:
        owner = like.stat()
        with contextlib.suppress(PermissionError):
            os.chown(path, owner.st_uid, owner.st_gid)
