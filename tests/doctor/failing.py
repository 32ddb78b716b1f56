"""The fixtures that make each check fail: changes to the facts of a healthy host.

Where a change comes from a library, the library is real and is read by the doctor's own reader.
"""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

from ddtree_ops_cli.doctor.portable import libraries, smoke

HERE = Path(__file__).parent
ARTEFACTS = HERE / "artefacts"
CASES: dict[str, dict[str, Any]] = json.loads((HERE / "failing.json").read_text())


def healthy() -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((HERE / "healthy.json").read_text())
    return facts


class Everything(libraries.TorchSymbols):
    """A PyTorch that has every symbol but those named `gone...`."""

    def __init__(self) -> None:
        self.names = {"something"}
        self.missing = []

    def without(self, undefined: Any) -> list[str]:
        return [name for name in super().without(undefined) if "gone" in name]


def failing(check: str, folder: Path) -> dict[str, Any]:
    """The facts with which a check fails. `folder` is for altered copies of an artefact."""
    case, facts = CASES[check], healthy()
    if "kernels" in case:
        facts["kernels"] = json.loads((HERE / case["kernels"]).read_text())
    if "artefact" in case:
        library = ARTEFACTS / case["artefact"]
        if "loaded" in case:
            facts["imports"] = imported(library, folder)
        else:
            known = frozenset([*(n for n in _sonames(facts)), "libc10.so"])
            facts["kernels"]["libraries"][case["as"]] = libraries.library(
                altered(library, case, folder), Everything(), known
            )
    for path, value in case.get("facts", {}).items():
        put(facts, path, value)
    return facts


def imported(library: Path, folder: Path) -> dict[str, Any]:
    """What the doctor says where `sgl_kernel` loads this library."""
    package = folder / "sgl_kernel"
    package.mkdir()
    (package / "__init__.py").write_text(f"import ctypes\nctypes.CDLL({str(library)!r}, mode=2)\n")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(folder)
    try:
        return smoke.imports(["sgl_kernel"])
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


def altered(library: Path, case: dict[str, Any], folder: Path) -> Path:
    content = bytearray(library.read_bytes())
    if "machine" in case:
        content[18:20] = int(case["machine"]).to_bytes(2, "little")
    copied = folder / library.name
    copied.write_bytes(content[: case.get("cut")])
    return copied


def put(facts: dict[str, Any], path: str, value: Any) -> None:
    """Set `a.b.0.c`; keys may hold dots themselves, so the longest that exists is taken."""
    place: Any = facts
    words = path.split(".")
    while True:
        if isinstance(place, list):
            place, words = place[int(words[0])], words[1:]
            continue
        whole = ".".join(words)
        if len(words) == 1 or whole in place:
            break
        place, words = place[words[0]], words[1:]
    if value == "twice":
        value = [copy.deepcopy(place[whole][0]) for _ in range(2)]
    place[whole] = value


def _sonames(facts: dict[str, Any]) -> list[str]:
    """What the libraries of the healthy host need, which is there."""
    found = facts["kernels"]["libraries"].values()
    return [name for library in found for name in library["needed"]]
