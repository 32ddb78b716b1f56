"""Exact application of unified diffs: no fuzz, no offset, no change of line endings.

unidiff reads the diff. Bytes travel as Latin-1 text, which maps each byte to one character, so
that a file of any encoding comes out with every unchanged byte as it was.
"""

from __future__ import annotations

from collections.abc import Iterable

from unidiff.constants import (
    DEV_NULL,
    LINE_TYPE_ADDED,
    LINE_TYPE_CONTEXT,
    LINE_TYPE_NO_NEWLINE,
    LINE_TYPE_REMOVED,
)
from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchedFile, PatchSet

from ..errors import PatchMismatch

_BYTES = "latin-1"


def parse(diff: bytes, *, where: str) -> dict[str, PatchedFile]:
    """The changes of a patch by file, in its order; `where` names the patch in errors.

    PatchMismatch if the text is no diff, or does anything but change the lines of files: new
    files are modules of the set, and nothing is ever deleted, renamed or made executable.
    """
    try:
        changes = PatchSet(diff.decode(_BYTES))
    except UnidiffParseError as error:
        raise PatchMismatch(f"not a unified diff: {error}", where=where) from error
    found: dict[str, PatchedFile] = {}
    for change in changes:
        old, new = change.source_file, change.target_file
        if DEV_NULL in (old, new) or change.is_binary_file or not len(change):
            name = new if old == DEV_NULL else old
            raise PatchMismatch(f"does more to {name} than change its lines", where=where)
        if not (old.startswith("a/") and new.startswith("b/") and old[2:] == new[2:]):
            raise PatchMismatch(
                f"--- {old} / +++ {new}", where=where, mend="name a file as a/PATH and b/PATH"
            )
        if change.source_mode != change.target_mode:
            raise PatchMismatch(f"changes the mode of {old[2:]}", where=where)
        if old[2:] in found:
            raise PatchMismatch(f"changes {old[2:]} twice", where=where)
        found[old[2:]] = change
    if not found:
        raise PatchMismatch("no file is changed", where=where)
    return found


def applied(change: PatchedFile, content: bytes, *, where: str) -> bytes:
    """`content` with every hunk of `change`; PatchMismatch (the line that differs) otherwise."""
    lines = _lines(content.decode(_BYTES))
    result: list[str] = []
    done = 0
    for number, hunk in enumerate(change, 1):
        old, new = _sides(hunk)
        # An empty old side names the line before it, any other its own first line.
        begin = hunk.source_start - bool(old)
        place = f"{where}, hunk {number} of {change.source_file[2:]}"
        if begin < done:
            raise PatchMismatch("overlaps the hunk before it", where=place)
        for index, expected in enumerate(old, begin):
            actual = lines[index] if index < len(lines) else None
            if actual != expected:
                found = "the file ends" if actual is None else f"found {actual!r}"
                raise PatchMismatch(
                    f"line {index + 1}: expected {expected!r}, {found}", where=place
                )
        result += lines[done:begin]
        result += new
        done = begin + len(old)
    return "".join([*result, *lines[done:]]).encode(_BYTES)


def _sides(hunk: Hunk) -> tuple[list[str], list[str]]:
    """The lines that a hunk expects, and those that it leaves; each with its line ending."""
    sides: dict[str, list[list[str]]] = {}
    old: list[str] = []
    new: list[str] = []
    sides[LINE_TYPE_CONTEXT] = [old, new]
    sides[LINE_TYPE_REMOVED] = [old]
    sides[LINE_TYPE_ADDED] = [new]
    last: Iterable[list[str]] = ()
    for line in hunk:
        if line.line_type == LINE_TYPE_NO_NEWLINE:
            for side in last:
                side[-1] = side[-1].removesuffix("\n")
            continue
        # Empty lines after a hunk belong to the text of the patch, and to no side.
        last = sides.get(line.line_type, ())
        for side in last:
            side.append(line.value)
    return old, new


def _lines(text: str) -> list[str]:
    """`text` cut after each newline and nowhere else (`splitlines` also cuts at form feeds)."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
