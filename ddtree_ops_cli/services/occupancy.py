"""What stands in the way of a service: a held GPU, a taken port, a container of that name. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..hosts.facts import Listener
    from ..hosts.gpus import Gpu

_IDLE_MIB = 1024
"""What a driver may keep for itself on a GPU that nobody uses; a model takes far more."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A container that this toolkit did not start: it is named, and never touched."""

    identity: str
    """The 64 digits."""
    name: str
    ports: Mapping[int, str]
    """Published ports of the host, each with its address."""


def gpu_holder(gpu: Gpu, own: Collection[str], neighbours: Sequence[Neighbour]) -> str | None:
    """Who computes on a GPU, and how much memory that takes; None if nobody else does.

    `own` are the containers of this toolkit on it, by their 64 digits.
    """
    names = {neighbour.identity: neighbour.name for neighbour in neighbours}
    foreign = []
    for holder in gpu.holders:
        # Nobody can tell what a process is that is not to be seen; beside an own service it is
        # taken as a part of it.
        if holder.container in own or (own and holder.user is None and holder.container is None):
            continue
        memory = "" if holder.memory_mib is None else f", {holder.memory_mib} MiB"
        owner = f" of {holder.user}" if holder.user else ""
        inside = names.get(holder.container or "", holder.container and holder.container[:12])
        place = f" in container {inside}" if inside else ""
        foreign.append(f"{holder.name}{owner} (pid {holder.pid}{memory}){place}")
    if foreign:
        return "; ".join(foreign)
    used = gpu.memory_used_mib or 0
    if not own and not gpu.holders and used > _IDLE_MIB:
        return f"{used} of {gpu.memory_total_mib} MiB are in use by what nvidia-smi does not name"
    return None


def port_holder(
    bind: str,
    port: int,
    *,
    listeners: Sequence[Listener],
    own: Mapping[int, str],
    neighbours: Sequence[Neighbour],
) -> str | None:
    """Who has a port of the host, in words; None if it is free.

    `own` are the titles of this toolkit's services by port.
    """
    if port in own:
        return own[port]
    for neighbour in neighbours:
        if port in neighbour.ports and _meet(bind, neighbour.ports[port]):
            return f"container {neighbour.name}, which this toolkit did not start"
    if any(one.port == port and _meet(bind, one.address) for one in listeners):
        return "another program listens there"
    return None


def _meet(one: str, other: str) -> bool:
    """Whether two listeners of one port are in each other's way."""
    first, second = ipaddress.ip_address(one), ipaddress.ip_address(other or "0.0.0.0")
    return first == second or first.is_unspecified or second.is_unspecified
