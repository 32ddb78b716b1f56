"""Facts and trust as they are shown: tables at a glance, or JSON."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from ..output import tables
from .clock import MEND
from .facts import HostFacts
from .gpus import Gpu, Holder
from .trust import Trusted
from .unknown import Unknown

_GIB = 1 << 30
_GPU_COLUMNS = ("GPU", "name", "MiB used", "MiB total", "arch", "driver", "MIG", "ECC", "held by")


def show(facts: HostFacts) -> None:
    tables.show(("fact", "value"), [(name, _told(name, facts)) for name in _names()])
    if not isinstance(facts.gpus, Unknown):
        tables.show(
            _GPU_COLUMNS, [_gpu(gpu) for gpu in facts.gpus], numeric="GPU MiB used total arch"
        )


def document(host: str, facts: HostFacts) -> dict[str, Any]:
    """`{"host", "facts": {name: value or null}, "unknown": {name: {"what", "mend"}}}`."""
    return {
        "host": host,
        "facts": {
            name: None if name in facts.unknown else _plain(getattr(facts, name))
            for name in _names()
        },
        "unknown": {name: asdict(reason) for name, reason in facts.unknown.items()},
    }


def trust_document(host: str, done: list[Trusted], *, written: bool) -> dict[str, Any]:
    return {
        "host": host,
        "written": written,
        "servers": [
            {
                "server": one.server,
                "known_as": one.known_as,
                "file": str(one.file),
                "known": [{"type": k.kind, "fingerprint": k.fingerprint} for k in one.known],
                "added": [{"type": k.kind, "fingerprint": k.fingerprint} for k in one.added],
            }
            for one in done
        ],
    }


def summary(facts: HostFacts) -> str:
    """A host in a few words."""
    release = facts.system.release if not isinstance(facts.system, Unknown) else ""
    engine = facts.engine
    docker = engine.what if isinstance(engine, Unknown) else f"Docker {engine.version}"
    return ", ".join(part for part in (release, docker) if part)


def _names() -> list[str]:
    return [field.name for field in fields(HostFacts)]


def _plain(value: Any) -> Any:
    return [asdict(item) for item in value] if isinstance(value, tuple) else asdict(value)


def _told(name: str, facts: HostFacts) -> str:
    if (reason := facts.unknown.get(name)) is not None:
        return f"unknown: {reason.what}" + (f"; {reason.mend}" if reason.mend else "")
    fact: Any = getattr(facts, name)
    if name == "system":
        return f"{fact.release}, {fact.kernel} {fact.architecture}, named {fact.hostname}"
    if name == "clock":
        return f"{fact}; {MEND}" if fact.is_off else f"{fact}"
    if name == "memory":
        return f"{_gib(fact.available_bytes)} of {_gib(fact.total_bytes)} available"
    if name == "disks":
        return ", ".join(
            f"{disk.mount}: {_gib(disk.free_bytes)} of {_gib(disk.total_bytes)} free"
            for disk in fact
        )
    if name == "ports":
        return ", ".join(f"{one.address}:{one.port}" for one in fact) or "nothing listens"
    if name == "engine":
        ways = {"gpus": "--gpus", "cdi": "CDI"}
        access = " and ".join(ways[way] for way in fact.gpu_access)
        return (
            f"Docker {fact.version}{' (rootless)' if fact.rootless else ''}, {fact.storage_driver}"
            f" in {fact.root}, " + (f"GPUs by {access}" if access else _NO_GPU_ACCESS)
        )
    return f"{len(fact)}"


_NO_GPU_ACCESS = "no GPUs for containers; install the NVIDIA container toolkit"


def _gib(count: int) -> str:
    return f"{count / _GIB:.1f} GiB"


def _gpu(gpu: Gpu) -> tuple[object, ...]:
    switches = {True: "on", False: "off", None: None}
    return (
        gpu.index,
        gpu.name,
        gpu.memory_used_mib,
        gpu.memory_total_mib,
        gpu.compute_capability,
        gpu.driver,
        switches[gpu.mig],
        switches[gpu.ecc],
        ", ".join(map(_holder, gpu.holders)) or None,
    )


def _holder(holder: Holder) -> str:
    memory = "" if holder.memory_mib is None else f" {holder.memory_mib} MiB"
    owner = f" of {holder.user}" if holder.user else ""
    return f"{holder.name}{owner} (pid {holder.pid}){memory}"
