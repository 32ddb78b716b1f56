"""What a server prints about its memory while it starts, beside what it needs and holds. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ddtree_ops_cli.hosts.gpus import Holder

_NUMBER = r"(-?\d+(?:\.\d+)?)"
_WEIGHTS = re.compile(rf"Load weight end\..*mem usage={_NUMBER} GB")
_STATES = re.compile(rf"conv_state size: {_NUMBER}GB, ssm_state size: {_NUMBER}GB")
_NODE_STATES = re.compile(
    rf"intermediate_ssm_state_cache size: {_NUMBER}GB "
    rf"intermediate_conv_window_cache size: {_NUMBER}GB"
)
_CACHE = re.compile(rf"KV Cache is allocated\..*K size: {_NUMBER} GB, V size: {_NUMBER} GB")
_GRAPHS = re.compile(rf"Capture .* end\..*mem usage={_NUMBER} GB")


@dataclass(frozen=True, slots=True)
class Printed:
    """GiB, as SGLang 0.5.17 prints them (its GB are 2^30 bytes). None: it did not print that.

    The pools are sizes of tensors. Weights and graphs are differences of free memory, which are
    wrong while another server starts on the same GPU.
    """

    weights: float | None
    states: float | None
    node_states: float | None
    cache: float | None
    graphs: float | None

    @property
    def total(self) -> float | None:
        parts = (self.weights, self.states, self.node_states, self.cache, self.graphs)
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None


def printed(log: str) -> Printed:
    return Printed(
        weights=_sum(_WEIGHTS, log),
        states=_sum(_STATES, log),
        node_states=_sum(_NODE_STATES, log),
        cache=_sum(_CACHE, log),
        graphs=_sum(_GRAPHS, log),
    )


def held(holders: Mapping[str, tuple[Holder, ...]], pids: frozenset[int]) -> dict[str, float]:
    """GiB by GPU UUID that the processes `pids` hold.

    Empty if nvidia-smi shows none of them (they run in another PID namespace) or no figure.
    """
    found: dict[str, float] = {}
    for uuid, processes in holders.items():
        mine = [one.memory_mib for one in processes if one.pid in pids]
        known = [mib for mib in mine if mib is not None]
        if known:
            found[uuid] = sum(known) / 1024
    return found


def _sum(pattern: re.Pattern[str], log: str) -> float | None:
    found = [sum(map(float, match.groups())) for match in pattern.finditer(log)]
    return round(sum(found), 3) if found else None
