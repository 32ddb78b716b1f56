"""Data for programs: one JSON document on stdout."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(document: object) -> None:
    """Print `document` as indented JSON; dataclasses and paths are converted."""
    json.dump(document, sys.stdout, indent=2, default=_plain, allow_nan=False)
    sys.stdout.write("\n")


def _plain(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
