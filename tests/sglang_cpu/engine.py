"""SGLang 0.5.17 with this project's patches, made to run on a CPU with interpreted kernels.

    python tests/sglang_cpu/engine.py WHEEL DESTINATION

The patch set is put in as an operator puts it in, by `ddtree patch apply`. `interpreter.patch` goes
on top and only opens doors (devices, dtypes, a fallback that SGLang has for other platforms); what
the kernels compute is untouched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
FAULTS = HERE / "faults"


def assemble(wheel: Path, destination: Path) -> None:
    """Unpacks `wheel` and patches it."""
    shutil.rmtree(destination, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(destination)
    apply = [sys.executable, "-m", "ddtree_ops_cli", "patch", "apply", str(destination.resolve())]
    subprocess.run(apply, check=True, cwd=PROJECT)
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
