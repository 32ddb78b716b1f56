"""Facts of the machine that the engine runs on, as seen from here: host or container."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

from .asking import ask, ask_python

GPU_FIELDS = (
    "index",
    "uuid",
    "name",
    "compute_cap",
    "driver_version",
    "memory.total",
    "persistence_mode",
    "power.limit",
    "power.default_limit",
    "power.max_limit",
    "pcie.link.gen.current",
    "pcie.link.width.current",
)
_LIMITS = {"memlock": "RLIMIT_MEMLOCK", "nofile": "RLIMIT_NOFILE", "stack": "RLIMIT_STACK"}
_NO_CLOCK = 5  # TIME_ERROR of adjtimex(2)

_LIBCUDA = """
import ctypes, json, os
found = {}
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    found["unknown"] = str(error)
else:
    version = ctypes.c_int()
    found["init"] = cuda.cuInit(0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    found["cuda"] = version.value
    lines = open("/proc/self/maps").read().splitlines()
    paths = sorted({line.split(None, 5)[-1] for line in lines if "libcuda.so" in line})
    found["path"] = paths[0] if paths else None
    found["real"] = os.path.realpath(paths[0]) if paths else None
print(json.dumps(found))
"""


def system() -> dict[str, Any]:
    libc = os.confstr("CS_GNU_LIBC_VERSION") if hasattr(os, "confstr") else None
    return {
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "user": os.geteuid(),
        "glibc": libc.split()[-1] if libc else None,
        "container": Path("/.dockerenv").exists() or "container" in os.environ,
    }


def driver() -> dict[str, Any]:
    """The kernel's module, and the libcuda that a program gets when it asks for one."""
    found: dict[str, Any] = {"module": _module_version(), "libcuda": ask_python(_LIBCUDA)}
    found["compat"] = sorted(
        str(path)
        for folder in Path("/usr/local").glob("cuda*/compat")
        for path in folder.glob("libcuda.so*")
    )
    return found


def _module_version() -> str | None:
    for file in ("/proc/driver/nvidia/version", "/sys/module/nvidia/version"):
        try:
            match = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", Path(file).read_text())
        except OSError:
            continue
        if match:
            return match.group(1)
    return None


def gpus() -> dict[str, Any]:
    """What nvidia-smi says of each GPU: `{"cards": [{field: text}]}`, or how it failed."""
    answer = ask(["nvidia-smi", f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader"])
    if answer.exit_code != 0:
        return {"exit_code": answer.exit_code, "unknown": answer.said or "nvidia-smi failed"}
    cards = []
    for line in answer.out.strip().splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) != len(GPU_FIELDS):
            return {"exit_code": 0, "unknown": f"nvidia-smi answers what was not asked: {line}"}
        cards.append(dict(zip(GPU_FIELDS, values)))
    head = ask(["nvidia-smi"])
    cuda = re.search(r"CUDA (?:UMD )?Version: (\d+\.\d+)", head.out)
    return {"cards": cards, "cuda": cuda.group(1) if cuda else None}


def devices() -> dict[str, Any]:
    """The device files that this place may open; a container has those of its GPUs alone."""
    nodes = [p.name for p in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", p.name)]
    return {
        "nodes": sorted(nodes, key=lambda name: int(name[6:])),
        "visible": os.environ.get("NVIDIA_VISIBLE_DEVICES"),
        "cuda_visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def limits() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, constant in _LIMITS.items():
        # The hard limit: SGLang raises the soft one itself.
        _, hard = resource.getrlimit(getattr(resource, constant))
        found[name] = None if hard == resource.RLIM_INFINITY else hard
    try:
        found["shm_bytes"] = shutil.disk_usage("/dev/shm").total
    except OSError:
        found["shm_bytes"] = 0
    return found


def disks(folders: list[str]) -> dict[str, Any]:
    found = {}
    for folder in folders:
        try:
            usage = shutil.disk_usage(Path(folder).expanduser())
        except OSError:
            continue
        found[folder] = {"free_bytes": usage.free, "total_bytes": usage.total}
    return {"folders": found}


def kernel_log() -> dict[str, Any]:
    """Lines about Xid: NVIDIA's driver reports a GPU's faults by these numbers."""
    for argv in (["dmesg"], ["journalctl", "-k", "-b", "--no-pager", "-q"]):
        answer = ask(argv)
        if answer.exit_code == 0 and answer.out.strip():
            lines = [line.strip() for line in answer.out.splitlines() if "NVRM: Xid" in line]
            return {"xid": lines[-20:]}
    return {"unknown": "the kernel log may not be read here"}


def links() -> dict[str, Any]:
    """IOMMU: with translation on, copies between GPUs go wrong or hang on many boards."""
    kinds: dict[str, int] = {}
    for file in Path("/sys/kernel/iommu_groups").glob("*/type"):
        try:
            kind = file.read_text().strip()
        except OSError:
            continue
        kinds[kind] = kinds.get(kind, 0) + 1
    return {"iommu": kinds}


def clock() -> dict[str, Any]:
    """adjtimex(2) without a change: whether something keeps this clock right."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "adjtimex"):
        return {"unknown": "there is no adjtimex here"}
    state = libc.adjtimex(ctypes.create_string_buffer(512))
    if state < 0:
        return {"unknown": f"adjtimex: {os.strerror(ctypes.get_errno())}"}
    return {"synchronised": state != _NO_CLOCK}
