"""Times as they are shown."""

from __future__ import annotations

import time
from itertools import pairwise


def duration(seconds: float) -> str:
    """Two units at most, the way people say it: 12 s, 3 min 5 s, 2 h 10 min, 3 d 4 h."""
    whole = int(seconds)
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    for (unit, size), (smaller, part) in pairwise(units):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def utc(moment: float) -> str:
    """Such as 2026-05-01T12:00:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
