"""The set, or what was edited, as one unified diff."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from ..errors import PatchMismatch
from .apply import original
from .manifest import PatchSet, sha256
from .target import Installation
from .verify import Survey

Kind = Literal["changed", "added", "edited", "missing", "unexpected"]


@dataclass(frozen=True, slots=True)
class FileDiff:
    path: str
    kind: Kind
    diff: bytes | None
    """Unified, in bytes because nothing says that a file is UTF-8; None where the content to
    compare with is not at hand."""


def difference(here: Survey) -> list[FileDiff]:
    """What the set changes; where files were edited by other hands, what those edits are.

    PatchMismatch where neither can be told: not SGLang, or a version without a set.
    """
    installation, patch_set = here.installation, here.patch_set
    if installation is None or patch_set is None:
        raise PatchMismatch(here.detail, where=str(here.target))
    old = {path: _pristine(installation, path, here) for path in patch_set.manifest.changes}
    new = _patched(patch_set, old)
    if not here.foreign:
        return [_compared(path, "changed", old[path], new[path]) for path in old] + [
            _compared(path, "added", b"", content) for path, content in patch_set.modules.items()
        ]
    # A patched tree keeps its originals, so what each file should be can be told.
    known = here.journal is not None and here.journal.set_hash == patch_set.set_hash
    expected = {**new, **patch_set.modules} if known else {}
    found = []
    for finding in here.findings:
        state = finding.state
        if state == "absent" and here.journal:
            state = "missing"
        if state in ("edited", "missing", "unexpected"):
            place = installation.place(finding.path)
            now = place.read_bytes() if place.is_file() else b""
            before = b"" if state == "unexpected" else expected.get(finding.path)
            found.append(_compared(finding.path, state, before, now))
    return found


def _pristine(installation: Installation, path: str, here: Survey) -> bytes | None:
    """A file of the release, if the store or the tree still has it."""
    assert here.patch_set is not None
    try:
        content = original(installation, path)
    except OSError:
        return None
    return content if sha256(content) == here.patch_set.manifest.changes[path][0] else None


def _patched(patch_set: PatchSet, old: dict[str, bytes | None]) -> dict[str, bytes | None]:
    """Each file as the set makes it. A file whose original is gone does not hide the others."""
    return {
        path: None if content is None else patch_set.content(path, content)
        for path, content in old.items()
    }


def _compared(path: str, kind: Kind, old: bytes | None, new: bytes | None) -> FileDiff:
    """With git's header, the only one that can say that an empty file is new."""
    if old is None or new is None:
        return FileDiff(path, kind, None)
    a, b = (f"{side}/{path}".encode() for side in "ab")
    header = [b"diff --git %b %b\n" % (a, b)]
    before, after = a, b
    if kind in ("added", "unexpected"):
        header.append(b"new file mode 100644\n")
        before = b"/dev/null"
    elif kind == "missing":
        header.append(b"deleted file mode 100644\n")
        after = b"/dev/null"
    lines = difflib.diff_bytes(difflib.unified_diff, _lines(old), _lines(new), before, after)
    text = b"".join(
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
        for line in (*header, *lines)
    )
    return FileDiff(path, kind, text)


def _lines(content: bytes) -> list[bytes]:
    """Cut at newlines only; bytes.splitlines also cuts at a lone carriage return."""
    lines = [line + b"\n" for line in content.split(b"\n")]
    return [*lines[:-1], last] if (last := lines[-1][:-1]) else lines[:-1]
