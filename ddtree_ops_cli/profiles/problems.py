"""What is wrong with a profile, and where."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ProfileError

MOST_SHOWN = 10


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A character of a file; lines and columns count from 1."""

    file: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{shown(self.file)}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    place: Place
    what: str
    mend: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.what}{'; ' if self.mend else ''}{self.mend}"


def refusal(problems: Iterable[Problem]) -> ProfileError:
    """One error for all the problems: a line each, sorted, at most `MOST_SHOWN`."""
    ordered = sorted(set(problems))
    lines = [str(problem) for problem in ordered[:MOST_SHOWN]]
    if more := len(ordered) - len(lines):
        lines.append(f"and {more} more")
    return ProfileError("\n".join(lines))


def shown(file: Path) -> str:
    """A path as people read it: relative to the current directory where it lies inside."""
    try:
        return str(file.relative_to(Path.cwd()))
    except (ValueError, OSError):  # elsewhere, or the current directory is gone
        return str(file)


def suggestion(word: str, known: Sequence[str]) -> str:
    """`did you mean X` for a near miss, else the known words; empty when there are none."""
    plain = {_plain(choice): choice for choice in known}
    if close := difflib.get_close_matches(_plain(word), plain, n=1):
        return f"did you mean {plain[close[0]]}"
    return f"known: {', '.join(known)}" if known else ""


def dotted(path: Iterable[str | int]) -> str:
    """A key as people write it, `engine.page_size`, on one line whatever it holds."""
    text = ".".join(map(str, path))
    return text if text.isprintable() and len(text) <= 60 else quoted(text)[1:-1]


def quoted(value: object) -> str:
    """A value as a message shows it: on one line, short."""
    text = repr(value) if not isinstance(value, str) else repr(value[:100])
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


def _plain(word: str) -> str:
    return word.casefold().replace("-", "_")
