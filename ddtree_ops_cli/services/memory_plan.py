"""What fits on the GPUs of a host, or into this machine for the lab engine. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..hosts.facts import Memory
from ..hosts.gpus import Gpu
from .engine_options import EngineOptions
from .memory import Division, divide, largest_budget, largest_concurrency
from .preflight import Models, mend, warnings, widest_fraction
from .shapes import GIB, MIB, Pair

Sizes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many requests of how many tokens must run at once; None where nothing was asked."""

    requests: int | None
    context: int | None

    @property
    def told(self) -> str:
        tokens = f" of {self.context} tokens" if self.context else ""
        return f"{self.requests or 1} request{'s' * ((self.requests or 1) > 1)}{tokens} at once"


@dataclass(frozen=True, slots=True)
class Column:
    """Devices with the same memory, and how a service would divide it."""

    title: str
    gpus: tuple[int, ...]
    """Their indices; empty for this machine."""
    capacity: int
    """Bytes."""
    items: Sizes
    """Each part and its bytes."""
    within_reserve: Sizes
    """What is known of the part `graphs and activations`."""
    figures: tuple[tuple[str, Any], ...]
    """What it comes to, by name."""
    refusal: str | None
    mend: str | None
    warnings: tuple[str, ...]


def for_gpus(
    gpus: Iterable[Gpu], models: Models, options: EngineOptions, wanted: Wanted
) -> list[Column]:
    """A column for all GPUs of the same name and memory; those that do not say it are left out."""
    alike: dict[tuple[str, int], list[Gpu]] = {}
    for gpu in gpus:
        if gpu.memory_total_mib is not None:
            alike.setdefault((gpu.name, gpu.memory_total_mib), []).append(gpu)
    return [
        _column(name, mib * MIB, members, models.pair, options, wanted)
        for (name, mib), members in alike.items()
    ]


def for_lab(memory: Memory, models: Models, options: EngineOptions) -> Column:
    """The reference engine computes in float32, one request at a time (lab/checkpoint.py)."""
    pair, context = models.pair, options.context_length
    attention = [pair.target.attention] + ([pair.drafter.attention] if pair.drafter else [])
    recurrence = pair.target.recurrence
    parts = [
        ("weights of the target", models.target.parameters * 4),
        ("weights of the drafter", models.drafter.parameters * 4 if models.drafter else 0),
        ("recurrent state", recurrence.state_bytes(4) if recurrence else 0),
        ("keys and values", context * sum(one.bytes_per_token(4) for one in attention)),
    ]
    left = memory.available_bytes - sum(size for _, size in parts)
    return Column(
        title="this machine",
        gpus=(),
        capacity=memory.available_bytes,
        items=(*_taken(parts), ("left", max(0, left))),
        within_reserve=(),
        figures=(("requests at once", 1), ("longest request", context)),
        refusal=None if left > 0 else "the models and one request need more than is available",
        mend="end other programs" if left <= 0 else None,
        warnings=(),
    )


def _column(
    name: str,
    capacity: int,
    gpus: Sequence[Gpu],
    pair: Pair,
    options: EngineOptions,
    wanted: Wanted,
) -> Column:
    division = divide(capacity, pair, options)
    requests, context = wanted.requests or 1, wanted.context or 1
    refusal, advice = division.refusal, None
    if refusal is None and not division.holds(requests, context) and wanted != Wanted(None, None):
        refusal = f"{wanted.told} do{'es' * (requests == 1)} not fit"
        advice = "see the largest budget and the most requests at once above"
    elif refusal is not None:
        advice = mend(division, pair, options)
    indices = tuple(gpu.index for gpu in gpus)
    return Column(
        title=f"GPU {_ranges(indices)}",
        gpus=indices,
        capacity=capacity,
        items=_items(division),
        within_reserve=division.buffers,
        figures=_figures(division, pair, options, requests=requests, context=context),
        refusal=refusal,
        mend=advice,
        warnings=(
            *warnings(division, options),
            *_spared(division, pair, options),
            *_of_the_gpus(gpus, name),
        ),
    )


def _items(division: Division) -> Sizes:
    parts = [
        ("CUDA runtime", division.runtime),
        ("weights of the target", division.target_weights),
        ("weights of the drafter", division.drafter_weights),
        ("recurrent states", division.recurrent_states),
        ("states of verified nodes", division.verify_states),
        ("keys and values of the target", division.target_kv),
        ("keys and values of the drafter", division.drafter_kv),
        ("graphs and activations", division.reserve),
        ("left", division.unused),
    ]
    return _taken(parts)


def _figures(
    division: Division, pair: Pair, options: EngineOptions, *, requests: int, context: int
) -> tuple[tuple[str, Any], ...]:
    starts = division.refusal is None
    capacity = division.capacity
    found: list[tuple[str, Any]] = [
        ("mem_fraction_static", round(division.fraction, 3)),
        ("requests at once", division.running if starts else 0),
        ("tokens in the KV cache", division.kv_tokens if starts else 0),
        ("longest request", min(division.kv_tokens, options.context_length) if starts else 0),
    ]
    if division.state:
        found[1:1] = [
            ("recurrent states", max(0, division.slots)),
            ("recurrent states per request", division.slots_per_request),
            ("MiB per recurrent state", round(division.state / MIB, 1)),
        ]
    if options.tree:
        best = largest_budget(capacity, pair, options, requests=requests, context=context)
        found.append(("largest budget", best))
    found.append(
        ("most requests at once", largest_concurrency(capacity, pair, options, context=context))
    )
    return tuple(found)


def _spared(division: Division, pair: Pair, options: EngineOptions) -> list[str]:
    """For a target with an image encoder SGLang keeps more back than its own estimate."""
    widest = widest_fraction(division)
    if pair.target.vision is None or options.mem_fraction_static or widest <= division.fraction:
        return []
    more = (division.reserve - division.estimated_reserve) / GIB
    return [
        f"for images the engine keeps {more:.1f} GiB more free than it reckons to need for text; "
        f"mem_fraction_static: {widest:g} in the model's profile gives them to requests"
    ]


def _of_the_gpus(gpus: Sequence[Gpu], name: str) -> list[str]:
    found = []
    for gpu in gpus:
        if gpu.holders:
            holders = ", ".join(f"{one.name} (pid {one.pid})" for one in gpu.holders)
            found.append(
                f"GPU {gpu.index} is in use, {gpu.memory_used_mib or 0} MiB by {holders}; the "
                "figures are for when it is free"
            )
        if gpu.mig:
            found.append(f"GPU {gpu.index} ({name}) is partitioned (MIG): a part has less memory")
    return found


def _taken(parts: Iterable[tuple[str, int]]) -> Sizes:
    return tuple((name, size) for name, size in parts if size)


def _ranges(numbers: Sequence[int]) -> str:
    """`0-2, 5` for 0, 1, 2, 5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
