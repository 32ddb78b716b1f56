"""The wheel of SGLang that goes into the image: found or fetched, and known by its hash."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from ..bundled import bundled
from ..errors import DdtreeError, PatchMismatch, UsageError
from ..services.sglang_args import SGLANG_VERSION

PYTHON = "3.12"
"""Of the image that is built with locked packages (Ubuntu 24.04)."""
_PLATFORM = "manylinux_2_34_x86_64"
_FETCH_S = 900


def known_hashes() -> frozenset[str]:
    """SHA-256 of each wheel of the locked version."""
    text = (bundled("docker") / "sglang.txt").read_text(encoding="utf-8")
    return frozenset(re.findall(r"sha256:([0-9a-f]{64})", text))


def checked(wheel: Path) -> Path:
    """A wheel that is one of those in the lock. UsageError, PatchMismatch."""
    if not wheel.is_file():
        raise UsageError("no such file", where=str(wheel))
    digest = hashlib.sha256()
    with wheel.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() not in known_hashes():
        raise PatchMismatch(
            f"is not a wheel of SGLang {SGLANG_VERSION} as published (its SHA-256 is "
            f"{digest.hexdigest()})",
            where=str(wheel),
            mend="leave --wheel out, and it is fetched",
        )
    return wheel


def fetched(cache: Path) -> Path:
    """The wheel for the image's Python, from the cache or by pip. DdtreeError with pip's words."""
    tag = PYTHON.replace(".", "")
    pattern = f"sglang-{SGLANG_VERSION}-cp{tag}-*.whl"
    if found := sorted(cache.glob(pattern)):
        return checked(found[0])
    cache.mkdir(parents=True, exist_ok=True)
    argv = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
        *("--only-binary=:all:", "--python-version", PYTHON, "--platform", _PLATFORM),
        *("--dest", str(cache), "--requirement", str(bundled("docker") / "sglang.txt")),
    ]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_FETCH_S)
    except subprocess.TimeoutExpired:
        raise DdtreeError(f"pip did not fetch SGLang within {_FETCH_S} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise DdtreeError(
            f"pip could not fetch SGLang {SGLANG_VERSION}: {lines[-1] if lines else 'no word'}",
            mend="fetch the wheel by other means and give it with --wheel FILE",
        )
    return checked(sorted(cache.glob(pattern))[0])


def unpack(wheel: Path, folder: Path) -> None:
    """Into `folder`; a name that leads out of it is refused."""
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            target = folder / info.filename
            if not target.resolve().is_relative_to(folder.resolve()):
                raise PatchMismatch(f"holds the name {info.filename}", where=str(wheel))
            archive.extract(info, folder)
            # zipfile forgets who may run a file.
            mode = info.external_attr >> 16
            if mode & 0o111 and not info.is_dir():
                os.chmod(target, 0o755)  # noqa: PTH101


def requirements() -> dict[str, str]:
    """The locked versions of everything in the image, SGLang included."""
    text = (bundled("docker") / "requirements.txt").read_text(encoding="utf-8")
    found = dict(_pins(text.splitlines()))
    return {**found, "sglang": SGLANG_VERSION}


def _pins(lines: Sequence[str]) -> list[tuple[str, str]]:
    matches = (re.match(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", line) for line in lines)
    return [(match[1].lower(), match[2]) for match in matches if match]
