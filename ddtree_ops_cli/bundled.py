"""Where the data folders that travel with the package are."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def bundled(folder: str) -> Path:
    """The directory of `playbooks`, `profiles`, `docker` or `patches`.

    In a wheel they lie inside the package; in a checkout, beside it.
    """
    packed = _PACKAGE / "_bundled" / folder
    return packed if packed.is_dir() else _PACKAGE.parent / folder
