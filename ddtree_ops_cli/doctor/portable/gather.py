"""All facts of this place, section by section; a section that fails says why in its place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from . import libraries, machine, packages, smoke

FORMAT = 1


def gather(intent: Mapping[str, Any], *, quick: bool = False) -> dict[str, Any]:
    """`intent` is what is to run here; see `checks.Facts.intent`.

    `quick` leaves out what has to be tried: about a second in place of a minute.
    """
    facts: dict[str, Any] = {"format": FORMAT, "intent": dict(intent), "seconds": {}}

    def section(name: str, read: Callable[[], dict[str, Any]]) -> None:
        began = time.monotonic()
        try:
            facts[name] = read()
        except Exception as error:  # noqa: BLE001 - whatever one section meets, the others go on
            facts[name] = {"unknown": f"{type(error).__name__}: {error}"}
        facts["seconds"][name] = round(time.monotonic() - began, 2)

    section("system", machine.system)
    section("driver", machine.driver)
    section("gpus", machine.gpus)
    section("devices", machine.devices)
    section("limits", machine.limits)
    section("disks", lambda: machine.disks(list(intent.get("folders") or ["/", "~"])))
    section("kernel_log", machine.kernel_log)
    section("links", machine.links)
    section("clock", machine.clock)
    section("environment", _environment)
    section("packages", packages.installed)
    section("pins", packages.pins)
    section("patch_set", packages.patch_set)
    section("libstdcxx", libraries.floors_here)
    section("kernels", libraries.kernels)
    section("numa", smoke.numa)
    section("torch", packages.torch if quick else smoke.torch)
    if quick:
        for name in ("triton", "jit", "ptxas", "imports", "patch_kernels"):
            facts[name] = {"unknown": "is not tried in a quick look"}
        return facts
    arch = wanted_arch(facts)
    if arch is None:
        for name in ("triton", "jit", "ptxas"):
            facts[name] = {"unknown": "no GPU says which architecture to compile for"}
    else:
        section("triton", lambda: smoke.triton(arch))
        section("jit", lambda: smoke.jit(arch))
        section("ptxas", lambda: smoke.ptxas(arch))
    section("imports", smoke.imports)
    section("patch_kernels", smoke.patch_kernels)
    return facts


def wanted_arch(facts: Mapping[str, Any]) -> int | None:
    """Major x 10 + minor of the GPU that the intent names, else of the one that is here."""
    if facts["intent"].get("arch"):
        return int(facts["intent"]["arch"])
    seen = facts["torch"].get("devices") or []
    if seen:
        return int(seen[0]["arch"])
    cards = facts["gpus"].get("cards") or []
    numbers = [card["compute_cap"].replace(".", "") for card in cards]
    return next((int(number) for number in numbers if number.isdigit()), None)


def _environment() -> dict[str, Any]:
    """Only variables that decide what runs; others may hold secrets."""
    wanted = ("CUDA_", "TRITON_", "SGLANG_", "NCCL_", "FLASHINFER_", "LD_LIBRARY_PATH")
    hidden = ("KEY", "TOKEN", "SECRET", "PASSWORD")
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(wanted) and not any(word in name for word in hidden)
    }
