"""Files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from ..errors import DdtreeError


def write_whole(file: Path, text: str, *, mode: int = 0o644) -> None:
    """DdtreeError if it cannot be written; what was there before is there still."""
    partial = file.with_name(f".{file.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.chmod(mode)
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise DdtreeError(f"cannot be written: {error.strerror}", where=str(file)) from error
