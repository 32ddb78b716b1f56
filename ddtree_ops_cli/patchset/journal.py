"""What makes a run recoverable: a folder in SGLang's dist-info, there while the set is applied.

    ddtree-patch/journal.json   a run is under way, or was interrupted
    ddtree-patch/applied.json   the same file, renamed when the last step is done
    ddtree-patch/originals/     the files as they were: hard links, or the very links
    ddtree-patch/staged/        the files as they will be, during a run
    ddtree-patch/removed/       the modules of the set, on their way out

The journal is written before the first change and removed after the last, so whatever moment a
process dies at, the next one knows each file's hash before and after, and can undo. To undo takes
renames and removals only: a full disk does not stop it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import DdtreeError, LockHeld, PatchMismatch
from .target import Installation

FOLDER = "ddtree-patch"
_FORMAT = 1
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    path: str
    """Relative to site-packages."""
    before: str | None
    """SHA-256; None for a file that the set adds."""
    after: str


@dataclass(frozen=True, slots=True)
class Journal:
    sglang: str
    set_hash: str
    modules: str
    """The folder that the set adds, relative to site-packages."""
    entries: tuple[Entry, ...]
    """The files that the set changes, those that it adds, and RECORD if there is one."""

    @property
    def record(self) -> Entry | None:
        return next((entry for entry in self.entries if entry.path.endswith("/RECORD")), None)

    @property
    def changed(self) -> tuple[Entry, ...]:
        return tuple(e for e in self.entries if e.before is not None and e is not self.record)


@dataclass(frozen=True, slots=True)
class Store:
    """The folder of the journal in one installation."""

    folder: Path

    @classmethod
    def of(cls, installation: Installation) -> Store:
        return cls(installation.dist_info / FOLDER)

    @property
    def begun(self) -> Path:
        return self.folder / "journal.json"

    @property
    def applied(self) -> Path:
        return self.folder / "applied.json"

    @property
    def staged(self) -> Path:
        return self.folder / "staged"

    @property
    def new_modules(self) -> Path:
        return self.staged / "modules"

    @property
    def holds_originals(self) -> bool:
        return any((self.folder / "originals").glob("*"))

    def original(self, path: str) -> Path:
        return self.folder / "originals" / quote(path, safe="")

    def read_original(self, path: str, place: Path) -> bytes:
        """The kept content of what was at `place`; a kept symbolic link still counts from there."""
        kept = self.original(path)
        return (place.parent / kept.readlink() if kept.is_symlink() else kept).read_bytes()

    def read(self) -> Journal | None:
        """The journal, of a finished run or not; PatchMismatch if it is not readable."""
        for file in (self.begun, self.applied):
            try:
                text = file.read_text(encoding="utf-8")
            except FileNotFoundError:
                continue
            try:
                return _decoded(json.loads(text))
            except (ValueError, TypeError, KeyError) as error:
                raise PatchMismatch(
                    "not a journal of this version of ddtree",
                    where=str(file),
                    mend="reinstall SGLang",
                ) from error
        return None

    def write(self, journal: Journal) -> None:
        """Begin: from here on a run that dies is seen and undone."""
        text = json.dumps({"format": _FORMAT, **asdict(journal)}, indent=1) + "\n"
        partial = self.folder / "journal.json.partial"
        write_new(partial, text.encode(), 0o644)
        partial.replace(self.begun)
        sync(self.folder)

    def discard(self) -> None:
        """Remove the folder; the journal goes last."""
        for part in ("staged", "removed", "originals"):
            if (self.folder / part).exists():
                shutil.rmtree(self.folder / part)
        sync(self.folder)
        self.begun.unlink(missing_ok=True)
        shutil.rmtree(self.folder)
        sync(self.folder.parent)


def _decoded(document: Any) -> Journal:
    if document.pop("format") != _FORMAT:
        raise ValueError("another format")
    entries = tuple(Entry(**entry) for entry in document.pop("entries"))
    for path in (document["modules"], *(entry.path for entry in entries)):
        # A journal is data from the target: it may never name a file outside of it.
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise ValueError(path)
    for digest in (text for entry in entries for text in (entry.before, entry.after)):
        if digest is not None and not _DIGEST.fullmatch(digest):
            raise ValueError(digest)
    return Journal(entries=entries, **document)


@contextlib.contextmanager
def exclusive(installation: Installation) -> Iterator[None]:
    """Hold the installation against other runs; LockHeld. The lock dies with the process."""
    try:
        handle = os.open(installation.dist_info, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise DdtreeError(
            f"cannot be read: {error.strerror}", where=str(installation.dist_info)
        ) from error
    try:
        # A file system without locks (some network ones) is used without.
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise LockHeld(
                    "another apply or revert is running",
                    where=str(installation.site),
                    mend="wait for it",
                ) from error
        yield
    finally:
        os.close(handle)


def in_progress(installation: Installation) -> bool:
    """Whether another process is applying or reverting now."""
    try:
        with exclusive(installation):
            return False
    except LockHeld:
        return True


def write_new(path: Path, content: bytes, mode: int) -> None:
    """A new file on the disk, with exactly this mode. It must not exist yet."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(path, "wb", opener=lambda name, _: os.open(name, flags, 0o600)) as file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())


def sync(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
