"""SGLang 0.5.17 with this project's patches, made to run on a CPU with interpreted kernels.

    python tests/sglang_cpu/engine.py WHEEL DESTINATION

`interpreter.patch` only opens doors (devices, dtypes, a fallback that SGLang has for other
platforms); what the kernels compute is untouched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
PATCHES = HERE.parents[1] / "patches"
FAULTS = HERE / "faults"


def assemble(wheel: Path, destination: Path) -> None:
    """Unpacks `wheel`, applies every patch and installs the new modules."""
    shutil.rmtree(destination, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(destination)
    for patch in sorted((PATCHES / "sglang-0.5.17").glob("*.patch")):
        _apply(patch, destination)
    shutil.copytree(
        PATCHES / "ddtree",
        destination / "sglang" / "srt" / "speculative" / "ddtree",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    _apply(HERE / "interpreter.patch", destination)


def plant(fault: str, engine: Path, destination: Path) -> Path:
    """A copy of `engine` with one fault in it."""
    shutil.copytree(engine, destination, copy_function=os.link)
    # patch(1) replaces files, so the links of the original stay as they are.
    _apply(FAULTS / f"{fault}.patch", destination)
    return destination


def _apply(patch: Path, root: Path) -> None:
    command = ["patch", "--silent", "--strip=1", "--fuzz=0", "--directory", str(root)]
    subprocess.run([*command, "--input", str(patch.resolve())], check=True)


if __name__ == "__main__":
    assemble(Path(sys.argv[1]), Path(sys.argv[2]))
