"""Apply and revert: all or nothing, and as often as one likes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import DdtreeError, PatchMismatch
from .journal import Store, exclusive
from .manifest import PatchSet
from .steps import originals_wanted, perform, reinstall, undo
from .target import Installation, locate
from .verify import FOREIGN, Survey, survey


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an apply or revert did, or with `dry_run` would do."""

    site: Path
    version: str
    changed: bool
    """False: it was done before, and nothing was touched."""
    recovered: bool
    """An interrupted run was undone first."""
    set_hash: str | None
    """The patch-set hash that was applied or reverted."""
    files: tuple[str, ...]
    """Files written, restored or removed, relative to `site`; last RECORD, if there is one, and the
    folder that keeps the originals, with a slash at its end."""


def apply(target: Path, patches: Path | None = None, *, dry_run: bool = False) -> Outcome:
    """Apply the set for the target's version of SGLang, in place of another set if there is one.

    PatchMismatch: not SGLang, an unknown version, edited files (all named), a half-patched tree,
    or a set that does not fit. LockHeld: another run. DdtreeError: no permission, no space; what
    was there before is there again.
    """
    with _held(target):
        here = survey(target, patches)
        installation, patch_set = _patchable(here)
        if here.state == "applied":
            return _outcome(here, patch_set.set_hash, changed=False)
        contents = patch_set.contents(lambda path: original(installation, path))
        _refuse_unwritable(installation, [*contents, patch_set.manifest.modules.target])
        if not dry_run:
            with _named(installation):
                undo(installation)
            perform(installation, patch_set, contents)
        files = [*here.named("patched"), *contents] if here.journal else contents
        return _outcome(here, patch_set.set_hash, changed=True, files=files)


def revert(target: Path, patches: Path | None = None, *, dry_run: bool = False) -> Outcome:
    """Make the target what it was before `apply`, whatever set was applied.

    Raises as `apply` does. Should the run die, the next apply or revert continues it.
    """
    with _held(target):
        here = survey(target, patches)
        installation = _installed(here)
        store = Store.of(installation)
        _refuse_foreign(here)
        if here.journal is None and here.state == "partial":
            raise PatchMismatch(
                f"nothing to go back to: {here.detail}",
                where=str(installation.site),
                mend=reinstall(installation),
            )
        if not store.folder.exists():
            return _outcome(here, None, changed=False)
        if here.journal is not None:
            originals_wanted(installation, here.journal)
            paths = [entry.path for entry in here.journal.entries]
            _refuse_unwritable(installation, [*paths, here.journal.modules])
        if not dry_run:
            with _named(installation):
                undo(installation)
        reverted = here.journal.set_hash if here.journal else None
        return _outcome(here, reverted, changed=True, files=here.named("patched"))


def original(installation: Installation, path: str) -> bytes:
    """The content of a file before any set was applied: as kept in the store, else as it is."""
    store = Store.of(installation)
    place = installation.place(path)
    if os.path.lexists(store.original(path)):
        return store.read_original(path, place)
    return place.read_bytes()


@contextlib.contextmanager
def _held(target: Path) -> Iterator[None]:
    found = locate(target)
    with exclusive(found) if isinstance(found, Installation) else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _named(installation: Installation) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DdtreeError(
            f"cannot restore: {error.strerror or error}",
            where=str(error.filename or installation.site),
            mend="the next `ddtree patch apply` or `revert` continues",
        ) from error


def _outcome(
    here: Survey, set_hash: str | None, *, changed: bool, files: Iterable[str] = ()
) -> Outcome:
    installation = _installed(here)
    recovered = changed and here.state == "interrupted"
    listed = dict.fromkeys(files)
    if changed:
        record = installation.dist_info / "RECORD"
        listed.pop(installation.relative(record), None)
        if record.exists():
            listed[installation.relative(record)] = None
        listed[f"{installation.relative(Store.of(installation).folder)}/"] = None
    return Outcome(
        installation.site, installation.version, changed, recovered, set_hash, tuple(listed)
    )


def _installed(here: Survey) -> Installation:
    if here.installation is None:
        raise PatchMismatch(
            here.detail,
            where=str(here.target),
            mend="give a site-packages folder, an unpacked wheel or a virtual environment",
        )
    return here.installation


def _patchable(here: Survey) -> tuple[Installation, PatchSet]:
    installation = _installed(here)
    where = str(installation.site)
    if here.patch_set is None:
        raise PatchMismatch(here.detail, where=where)
    _refuse_foreign(here)
    if here.state == "partial":
        mend = reinstall(installation)
        if here.journal is not None:
            mend = "`ddtree patch revert` restores the original"
        raise PatchMismatch(f"half-patched; {here.detail}", where=where, mend=mend)
    for path in here.patch_set.paths:
        folder = _nearest(installation.place(path).parent)
        if not folder.resolve().is_relative_to(installation.site.resolve()):
            raise PatchMismatch(
                f"{installation.relative(folder)} is a link that leads out of it", where=where
            )
    return installation, here.patch_set


def _refuse_foreign(here: Survey) -> None:
    installation = _installed(here)
    if here.named(*FOREIGN):
        raise PatchMismatch(
            here.foreign, where=str(installation.site), mend=reinstall(installation)
        )


def _nearest(folder: Path) -> Path:
    """The folder itself, or the closest one above it that exists."""
    while not folder.exists():
        folder = folder.parent
    return folder


def _refuse_unwritable(installation: Installation, paths: Iterable[str]) -> None:
    """DdtreeError unless each path can be written, replaced or removed."""
    folders = {_nearest(installation.place(path).parent) for path in paths}
    for folder in sorted(folders | {installation.dist_info}):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise DdtreeError(
                "no permission to write in it",
                where=str(folder),
                mend="run as the owner of the installation",
            )
