"""A fact that could not be read: the reason stands in the fact's place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unknown:
    what: str
    mend: str | None
