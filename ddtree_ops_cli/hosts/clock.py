"""A host's clock beside this machine's.

What a host keeps (when a container began and ended, the audit log, locks, labels) is told by its
own clock, and how long ago that was is reckoned by the same one: nothing depends on whether it is
right.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..output.console import warn
from ..output.times import duration
from .unknown import Unknown

_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Clock:
    offset_s: float
    """How far the host's clock is ahead of this machine's."""
    uncertainty_s: float
    """That the offset may be wrong by."""

    @property
    def is_off(self) -> bool:
        return abs(self.offset_s) > _LIMIT_S + self.uncertainty_s

    @property
    def now(self) -> float:
        """Seconds since the epoch, as the host has them."""
        return time.time() + self.offset_s

    def __str__(self) -> str:
        direction = "ahead of" if self.offset_s > 0 else "behind"
        off = abs(self.offset_s)
        return f"{f'{off:.1f} s' if off < 60 else duration(off)} {direction} this machine's"


THIS = Clock(0.0, 0.0)
"""This machine's own."""
MEND = "set it right (chrony or systemd-timesyncd)"


def warn_if_off(host: str, clock: Clock | Unknown) -> None:
    """Where times of the host are shown."""
    if isinstance(clock, Clock) and clock.is_off:
        warn(f"the clock of {host} is {clock}; its times are told by it; {MEND}")
