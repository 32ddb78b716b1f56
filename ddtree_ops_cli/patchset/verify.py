"""What state a target is in, told from the hashes of its files alone."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ..bundled import bundled
from ..errors import DdtreeError
from .journal import Entry, Journal, Store, in_progress
from .manifest import PatchSet, known, known_versions, sha256
from .target import Installation, NotSglang, locate

State = Literal[
    "unpatched",
    "applied",
    "interrupted",
    "partial",
    "foreign edits",
    "other patch set",
    "other version",
    "not SGLang",
]
FileState = Literal[
    "original", "patched", "absent", "half-patched", "edited", "missing", "unexpected"
]
FOREIGN: frozenset[FileState] = frozenset({"edited", "missing", "unexpected"})
CACHE = "__pycache__"


@dataclass(frozen=True, slots=True)
class Finding:
    path: str
    state: FileState


@dataclass(frozen=True, slots=True)
class Survey:
    """A target as it is. `installation` is None where there is no SGLang, `patch_set` where none
    is known for its version, `journal` where nothing was applied or begun."""

    target: Path
    state: State
    detail: str
    installation: Installation | None = None
    patch_set: PatchSet | None = None
    journal: Journal | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def clean(self) -> bool:
        return self.state in ("unpatched", "applied")

    @property
    def applied_hash(self) -> str | None:
        """The patch-set hash of what is applied now."""
        complete = self.state in ("applied", "other patch set")
        return self.journal.set_hash if self.journal and complete else None

    @property
    def foreign(self) -> str:
        """The files that neither a release nor a set explains, each with what is wrong."""
        found = [f"{f.path} ({f.state})" for f in self.findings if f.state in FOREIGN]
        return f"changed by other hands: {', '.join(found)}" if found else ""

    def named(self, *states: FileState) -> list[str]:
        return [finding.path for finding in self.findings if finding.state in states]


def survey(target: Path, patches: Path | None = None) -> Survey:
    """The state of `target`, against the patch sets in the folder `patches`.

    Reads only. Raises as `locate` and `PatchSet.load` do.
    """
    try:
        return _survey(target, bundled("patches") if patches is None else patches)
    except OSError as error:
        raise DdtreeError(
            f"cannot be read: {error.strerror}", where=str(error.filename or target)
        ) from error


def _survey(target: Path, root: Path) -> Survey:
    found = locate(target)
    if isinstance(found, NotSglang):
        return Survey(target, "not SGLang", found.reason)
    store = Store.of(found)
    journal = store.read()
    if found.version not in known_versions(root):
        return Survey(
            target,
            "other version",
            f"SGLang {found.version} has no patch set; known: {known(root)}",
            found,
            journal=journal,
            findings=examine(found, journal) if journal else (),
        )
    patch_set = PatchSet.load(found.version, root)
    here = Survey(target, "unpatched", "", found, patch_set, journal)
    findings = examine(found, journal) if journal else _examine_by_manifest(found, patch_set)
    state, detail = _judge(replace(here, findings=findings), unfinished=_unfinished(store))
    return replace(here, state=state, detail=detail, findings=findings)


def examine(installation: Installation, journal: Journal) -> tuple[Finding, ...]:
    """Each file of a journal as it is now, and files in its module folder that it does not know."""
    findings = _examine(installation, journal.entries, journal.modules)
    record = installation.relative(installation.dist_info / "RECORD")
    if all(f.state in ("original", "absent") for f in findings if f.path != record):
        # Reinstalled over an interrupted run: the installer wrote a RECORD of its own.
        return tuple(
            replace(f, state="original") if (f.path, f.state) == (record, "edited") else f
            for f in findings
        )
    return findings


def _examine_by_manifest(installation: Installation, patch_set: PatchSet) -> tuple[Finding, ...]:
    manifest = patch_set.manifest
    entries = [Entry(path, hashes[0], hashes[-1]) for path, hashes in manifest.changes.items()]
    entries += [Entry(path, None, sha) for path, sha in manifest.additions.items()]
    between = {path: frozenset(hashes[1:-1]) for path, hashes in manifest.changes.items()}
    return tuple(
        replace(finding, state="half-patched")
        if finding.state == "edited"
        and digest(installation.place(finding.path)) in between.get(finding.path, ())
        else finding
        for finding in _examine(installation, entries, manifest.modules.target)
    )


def _examine(
    installation: Installation, entries: Iterable[Entry], modules: str
) -> tuple[Finding, ...]:
    found = [Finding(entry.path, file_state(installation, entry)) for entry in entries]
    known_paths = {finding.path for finding in found}
    for place in sorted(installation.place(modules).rglob("*")):
        inside = place.relative_to(installation.place(modules))
        path = installation.relative(place)
        directory = place.is_dir() and not place.is_symlink()
        if CACHE not in inside.parts and not directory and path not in known_paths:
            found.append(Finding(path, "unexpected"))
    return tuple(found)


def file_state(installation: Installation, entry: Entry) -> FileState:
    now = digest(installation.place(entry.path))
    if now == entry.after:
        return "patched"
    if now == entry.before:
        return "absent" if now is None else "original"
    return "missing" if now is None else "edited"


def digest(place: Path) -> str | None:
    """SHA-256 of a file's content; None if there is none; "" for what is not a regular file."""
    try:
        if not stat.S_ISREG(place.stat().st_mode):
            return ""
        return sha256(place.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _unfinished(store: Store) -> bool:
    return store.folder.exists() and not store.applied.exists()


def _judge(here: Survey, *, unfinished: bool) -> tuple[State, str]:
    assert here.installation is not None
    assert here.patch_set is not None
    if here.foreign:
        return "foreign edits", here.foreign
    if unfinished:
        if in_progress(here.installation):
            return "interrupted", "an apply or revert is running now"
        return "interrupted", "an apply or revert did not end; the next one recovers"
    patched = here.named("patched")
    rest = here.named("original", "absent", "half-patched")
    if here.journal is None:
        if not patched and not here.named("half-patched"):
            return "unpatched", f"SGLang {here.installation.version} as released"
        if not rest:
            return "partial", "every file is patched, but the originals were not kept"
        return "partial", _halves(patched, rest)
    if rest:
        return "partial", _halves(patched, rest)
    if here.journal.set_hash != here.patch_set.set_hash:
        return "other patch set", "patched with the set of another version of ddtree"
    return "applied", f"{len(patched)} files are as the set makes them"


def _halves(patched: list[str], rest: list[str]) -> str:
    return f"patched: {', '.join(patched) or 'none'}; not patched: {', '.join(rest)}"
