"""Which comparison runs on which GPU. Pure: from the devices and what the servers need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddtree_ops_cli.errors import DdtreeError

from .services import Device


@dataclass(frozen=True, slots=True)
class Match:
    """Linear against the tree of one budget."""

    budget: int
    linear: Device
    tree: Device
    off_spine: bool = False
    """Whether what the tree is forced to accept leaves its spine."""


@dataclass(frozen=True, slots=True)
class Placement:
    lanes: tuple[tuple[Match, ...], ...]
    """One lane a GPU: its matches run one after the other, beside those of the other lanes."""
    across: tuple[Match, ...]
    """On the first two GPUs, after all lanes: a GPU that carries two measurements shows neither."""
    turns: tuple[Match, ...]
    """On the only GPU, which holds one server at a time: its arms take turns."""


def place(
    devices: Sequence[Device],
    wanted: Sequence[tuple[int, bool]],
    linear_gib: float,
    tree_gib: Mapping[int, float],
) -> Placement:
    """Where each of `wanted` (a budget, and whether off the spine) is measured.

    Both servers of a match on one GPU where its memory allows that, the matches spread over the
    GPUs; else on two GPUs; else in turns. DdtreeError where a server alone does not fit.
    """
    lanes: list[list[Match]] = [[] for _ in devices]
    across: list[Match] = []
    turns: list[Match] = []
    turn = 0
    for budget, off_spine in sorted(wanted):
        roomy = [
            number
            for number, device in enumerate(devices)
            if linear_gib + tree_gib[budget] <= device.memory_mib / 1024
        ]
        if roomy:
            number = roomy[turn % len(roomy)]
            turn += 1
            lanes[number].append(Match(budget, devices[number], devices[number], off_spine))
            continue
        _refuse_too_large(devices[:2], budget, max(linear_gib, tree_gib[budget]))
        apart = across if len(devices) > 1 else turns
        apart.append(Match(budget, devices[0], devices[:2][-1], off_spine))
    return Placement(tuple(tuple(lane) for lane in lanes if lane), tuple(across), tuple(turns))


def _refuse_too_large(devices: Sequence[Device], budget: int, gib: float) -> None:
    for device in devices:
        if gib > device.memory_mib / 1024:
            raise DdtreeError(
                f"a server with budget {budget} needs {gib:.0f} GiB, more than the "
                f"{device.memory_mib / 1024:.0f} GiB of one GPU",
                where=f"GPU {device.index}, {device.name}",
                mend="leave this budget out (--budgets), or take a larger GPU",
            )
