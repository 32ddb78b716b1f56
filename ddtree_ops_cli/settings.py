"""What the global options of the command line say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    profiles: Path | None = None
    """An extra directory of profiles, searched before all others (`--profiles`)."""
