"""The fixtures that make each check fail: changes to the facts of a healthy host.

Where a change comes from a library, the library is real and is read by the doctor's own reader.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ddtree_ops_cli.doctor.portable import libraries, smoke

HERE = Path(__file__).parent
ARTEFACTS = HERE / "artefacts"
CASES: dict[str, dict[str, Any]] = json.loads((HERE / "failing.json").read_text())


def healthy() -> dict[str, Any]:
    """The facts that the doctor gathered on a host with two H200, and an image as it should be.

    SGLang was not installed whole there, so what concerns its packages was read from the wheels.
    """
    facts = read("recorded-h200.json")
    facts["kernels"] = read("kernels-of-torch-2.11-on-2.13.json")
    for library in facts["kernels"]["libraries"].values():
        library["missing"], library["missing_first"] = 0, []
        library["absent"] = ["libcuda.so.1"]
    facts["kernels"]["torch_libraries"] = []
    facts["pins"] = read("pins-of-sglang-0.5.17.json")
    facts["packages"]["versions"] |= facts["pins"]["exact"]
    facts["packages"]["twice"] = {}
    facts["patch_set"] = {"applied": "b843d160418a", "modules": True, "changed": []}
    facts["clock"] = {"synchronised": True}
    return facts


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / name).read_text())
    return found


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
        facts["kernels"] = read(case["kernels"])
    if "artefact" in case:
        library = ARTEFACTS / case["artefact"]
        if "loaded" in case:
            facts["imports"] = imported(library, folder)
        else:
            known = frozenset([*(n for n in _sonames(facts)), "libc10.so"])
            facts["kernels"]["libraries"][case["as"]] = libraries.library(
                altered(library, case, folder), Everything(), known
            )
    for section, name in case.get("recorded", {}).items():
        facts[section] = read("recorded-compilers.json")[name]
    if "limited" in case:
        facts["limits"] |= limited(case["limited"])
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


def limited(limits: dict[str, int]) -> dict[str, int]:
    """What the doctor reads in a process that has these limits; of it, those alone."""
    program = (
        "import json, resource, sys; from ddtree_ops_cli.doctor.portable import machine\n"
        "for name, limit in json.loads(sys.argv[1]).items():\n"
        "    which = getattr(resource, 'RLIMIT_' + name.upper())\n"
        "    resource.setrlimit(which, (limit, limit))\n"
        "print(json.dumps(machine.limits()))"
    )
    argv = [sys.executable, "-c", program, json.dumps(limits)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return {name: found[name] for name in limits}


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
    place[whole] = value


def _sonames(facts: dict[str, Any]) -> list[str]:
    """What the libraries of the healthy host need, which is there."""
    found = facts["kernels"]["libraries"].values()
    return [name for library in found for name in library["needed"]]
