"""Facts of compiled libraries: what SGLang's kernels ask for, and what is here to give it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import fatbin
from .asking import ask, ask_python
from .elf import Elf, NotElf, read

# Mangled names (Itanium C++ ABI): of PyTorch's own functions, data and type information, and not of
# templates of the standard library that merely have PyTorch's types in them.
_TORCHS_OWN = re.compile(r"_Z(?:T[VIST])?(?:N[VK]*[RO]?)?(?:3c10|2at|5torch|6caffe2)")
# The old std::string as a parameter or a result.
_OLD_STRING = re.compile(r"(?:RK|[REPKa-z])Ss(?:$|[A-Z0-9])")
_SHOWN = 20

_STDCXX = """
import ctypes, json
ctypes.CDLL("libstdc++.so.6")
paths = [line.split(None, 5)[-1] for line in open("/proc/self/maps") if "libstdc++" in line]
print(json.dumps({"path": paths[0].strip()}))
"""


def package_folder(name: str) -> Path | None:
    """Where a package would be imported from; nothing of it runs."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) if places else None


def kernels() -> dict[str, Any]:
    """The libraries of sgl_kernel: `{"libraries": {relative path: facts}}`."""
    folder = package_folder("sgl_kernel")
    if folder is None:
        return {"unknown": "sgl_kernel is not installed here"}
    exported = TorchSymbols(package_folder("torch"))
    there = _loadable(folder)
    found = {}
    for path in sorted(folder.rglob("*.so*")):
        name = path.relative_to(folder).as_posix()
        found[name] = library(path, exported, there)
    return {"libraries": found, "torch_libraries": exported.missing}


def library(path: Path, exported: TorchSymbols, there: frozenset[str]) -> dict[str, Any]:
    """The facts of one library, or why there are none."""
    try:
        elf = read(path)
        images = []
        if ".nv_fatbin" in elf.sections:
            images = fatbin.containers(path, elf.sections[".nv_fatbin"])
    except (NotElf, OSError, ValueError) as error:
        return {"unknown": str(error)}
    missing = exported.without(elf.undefined)
    return {
        "machine": elf.machine,
        "needed": list(elf.needed),
        "absent": [name for name in elf.needed if name not in there],
        "floors": floors(elf),
        "cxx11": cxx11(elf),
        "missing": len(missing),
        "missing_first": demangled(missing[:_SHOWN]),
        "images": _counted(images),
    }


def floors(elf: Elf) -> dict[str, str]:
    """The newest GLIBC, GLIBCXX and CXXABI version that the library asks for."""
    found: dict[str, str] = {}
    for names in elf.requires.values():
        for name in names:
            family, _, number = name.rpartition("_")
            if family in ("GLIBC", "GLIBCXX", "CXXABI") and number[:1].isdigit():
                found[family] = max(found.get(family, "0"), number, key=numbers)
    return found


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def cxx11(elf: Elf) -> bool | None:
    """The ABI of std::string that it was compiled for; None if it exchanges no strings.

    GCC's manual, "Dual ABI": names with the new ABI carry `__cxx11`, or the tag `B5cxx11`;
    the old std::string is `Ss` in a mangled name.
    """
    names = [name for name in elf.undefined if _TORCHS_OWN.match(name)]
    if any("__cxx11" in name or "B5cxx11" in name for name in names):
        return True
    return False if any(_OLD_STRING.search(name) for name in names) else None


def _counted(containers: list[tuple[fatbin.Image, ...]]) -> list[dict[str, Any]]:
    """Containers of equal images together: `[{"containers": 51, "images": ["sm_90", ...]}]`."""
    counted: dict[tuple[str, ...], int] = {}
    for images in containers:
        key = tuple(sorted({image.name for image in images}))
        counted[key] = counted.get(key, 0) + 1
    return [{"containers": count, "images": list(key)} for key, count in sorted(counted.items())]


class TorchSymbols:
    """What the installed PyTorch exports."""

    def __init__(self, torch: Path | None) -> None:
        self.names: set[str] = set()
        self.missing: list[str] = []
        """The libraries of a CUDA build of PyTorch that are not there."""
        for name in ("c10", "c10_cuda", "torch", "torch_cpu", "torch_cuda", "torch_python"):
            path = (torch or Path("nowhere")) / "lib" / f"lib{name}.so"
            try:
                self.names |= read(path).defined
            except (NotElf, OSError):
                self.missing.append(path.name)

    def without(self, undefined: Iterable[str]) -> list[str]:
        """The names of PyTorch's own that it does not export."""
        if not self.names:
            return []
        return sorted(
            name for name in undefined if name not in self.names and _TORCHS_OWN.match(name)
        )


def _loadable(folder: Path) -> frozenset[str]:
    """Sonames that a library of `folder` can find once PyTorch is loaded."""
    places = [folder, *[path for path in folder.iterdir() if path.is_dir()]]
    torch = package_folder("torch")
    if torch is not None:
        places += [torch / "lib", *torch.parent.glob("nvidia/*/lib"), *torch.parent.glob("*.libs")]
    places += [Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    names = {path.name for place in places if place.is_dir() for path in place.glob("*.so*")}
    cache = ask(["/sbin/ldconfig", "-p"])
    names |= {line.split()[0] for line in cache.out.splitlines() if "=>" in line}
    for name in ("libc.so.6", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"):
        names.add(name)  # this very process runs with them
    return frozenset(names)


def floors_here() -> dict[str, Any]:
    """The newest GLIBCXX and CXXABI of the libstdc++ that this Python gets."""
    where = ask_python(_STDCXX)
    if "path" not in where:
        return {"unknown": "there is no libstdc++.so.6 here"}
    try:
        names = read(Path(where["path"])).provides
    except (NotElf, OSError) as error:
        return {"unknown": str(error)}
    found = {"path": where["path"]}
    for family in ("GLIBCXX", "CXXABI"):
        numbered = [n.rpartition("_")[2] for n in names if re.fullmatch(rf"{family}_[\d.]+", n)]
        if numbered:
            found[family] = max(numbered, key=numbers)
    return found


def demangled(names: list[str]) -> list[str]:
    """C++ names as people write them; a name that is none stays as it is."""
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        free = ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return list(names)
    demangle.restype = ctypes.c_void_p
    free.argtypes = [ctypes.c_void_p]
    found = []
    for name in names:
        status = ctypes.c_int()
        text = demangle(name.encode(), None, None, ctypes.byref(status))
        found.append(ctypes.string_at(text).decode() if text and status.value == 0 else name)
        if text:
            free(text)
    return found
