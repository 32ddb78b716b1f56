"""Where two answers part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..engine_api.answers import Completion


@dataclass(frozen=True, slots=True)
class Difference:
    position: int
    """From 0, in tokens where both answers have them, else in characters."""
    unit: str
    ours: str
    theirs: str

    def __str__(self) -> str:
        return f"{self.unit} {self.position} ({self.ours} and {self.theirs})"


def first_difference(ours: Completion, theirs: Completion) -> Difference | None:
    """None when the answers are the same."""
    if ours.token_ids and theirs.token_ids:
        return _first("token", list(map(str, ours.token_ids)), list(map(str, theirs.token_ids)))
    return _first("character", list(map(repr, ours.text)), list(map(repr, theirs.text)))


def _first(unit: str, ours: Sequence[str], theirs: Sequence[str]) -> Difference | None:
    if ours == theirs:
        return None
    shorter = min(len(ours), len(theirs))
    at = next((at for at in range(shorter) if ours[at] != theirs[at]), shorter)
    return Difference(
        at, unit, *(one[at] if at < len(one) else "the end" for one in (ours, theirs))
    )
