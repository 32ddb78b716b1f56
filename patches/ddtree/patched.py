"""Whether SGLang around these modules is patched whole: half a set would serve, but wrongly."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import sglang

from .patched_files import PATCHED


def refuse_half_patched(site: Path | None = None) -> None:
    """Raises ValueError with the files of SGLang that are not as the patch set makes them.

    `site` holds `sglang/` [default: where this process imported it from].
    """
    site = Path(sglang.__file__).parent.parent if site is None else site
    wrong = [path for path, digest in PATCHED.items() if _digest(site / path) != digest]
    if wrong:
        raise ValueError(
            f"SGLang is half-patched: in {site}, the patch set of DDTREE makes other files of "
            f"{', '.join(wrong)}; `ddtree patch status {site}` tells what to do"
        )


def _digest(file: Path) -> str | None:
    """As in PATCHED; None where there is no such file."""
    try:
        return sha256(file.read_bytes()).hexdigest()[:16]
    except OSError:
        return None
