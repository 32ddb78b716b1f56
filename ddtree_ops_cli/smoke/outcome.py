"""What a check found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["passed", "failed", "not exercised"]
Figures = Mapping[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`not exercised` is what it says: nothing was proven, and `detail` tells how to prove it."""

    check: str
    verdict: Verdict
    detail: str
    figures: Figures = field(default_factory=dict)
