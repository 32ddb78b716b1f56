"""How SGLang 0.5.17 divides the memory of a GPU for a service. Pure; sizes in bytes.

The order is the engine's own (paths under sglang/srt): both models are loaded; a share of what was
free before is set aside for graphs and activations (server_args._handle_gpu_memory_settings); of
the rest a part goes to recurrent states (mem_cache/kv_cache_configurator._handle_max_mamba_cache)
and what is left to keys and values (model_executor/pool_configurator.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .engine_options import EngineOptions
from .reserve import buffers, default_fraction, estimated_reserve
from .shapes import GIB, MIB, Pair

RUNTIME_BYTES = int(1.27 * GIB)
"""CUDA context, driver and process group, gone before the first weight is read.

Measured: an H200 of 143,771 MiB had 139.13 GiB free at "Load weight begin" of SGLang 0.5.17 (torch
2.11.0+cu130, driver 580).
"""
MAX_BUDGET = 256
"""The largest that the patch set takes (patches/ddtree/arguments.py)."""
_MOST_REQUESTS = 4096
"""More than SGLang ever runs at once (kv_cache_configurator.resolve_max_num_reqs)."""


@dataclass(frozen=True, slots=True)
class Division:
    """What each part of a GPU's memory goes to; the parts add up to all of it."""

    capacity: int
    runtime: int
    target_weights: int
    drafter_weights: int
    recurrent_states: int
    """Committed states: `slots` and one of padding."""
    verify_states: int
    """A state per node of every running request, and of one of padding."""
    target_kv: int
    drafter_kv: int
    reserve: int
    """Left to graphs, activations and `buffers`."""
    buffers: tuple[tuple[str, int], ...]
    """What of the reserve is known to be taken, each with its size."""
    unused: int
    """Too little for one more token, or what a limit of the profile leaves over."""

    fraction: float
    """mem_fraction_static, SGLang's own where the profile sets none."""
    estimated_reserve: int
    """What SGLang itself reckons graphs and activations to need."""
    rows: int
    """Verified for a request in a step: budget + 1, or the block; 1 without a drafter."""
    state: int
    """One recurrent state; 0 for a target without recurrent layers."""
    slots: int
    slots_per_request: int
    asked: int | None
    """max_running_requests as the engine resolves it; None: as many as fit."""
    running: int
    """Requests that are decoded at the same time."""
    kv_tokens: int
    refusal: str | None
    """Why the engine would end at start, in its terms; None if it starts."""

    @property
    def capped_by_states(self) -> bool:
        """Whether the pool of recurrent states, and nothing else, limits the requests at once."""
        return (
            self.slots_per_request > 0
            and self.running == self.slots // self.slots_per_request
            and (self.asked is None or self.running < self.asked)
        )

    def holds(self, requests: int, context: int) -> bool:
        """Whether it starts, and so many requests of so many tokens run at once."""
        return (
            self.refusal is None
            and self.running >= requests
            and self.kv_tokens >= requests * context
            and sum(size for _, size in self.buffers) <= self.reserve
        )


def divide(
    capacity: int, pair: Pair, options: EngineOptions, *, free: int | None = None
) -> Division:
    """`capacity` as nvidia-smi gives it; `free` before the models are loaded, where it is known."""
    free = capacity - RUNTIME_BYTES if free is None else free
    estimated = estimated_reserve(capacity, options)
    fraction = options.mem_fraction_static or default_fraction(capacity, estimated, pair, options)
    reserve = int(free * (1 - fraction))
    available = free - pair.target_bytes - pair.drafter_bytes - reserve

    states = _States.of(available, pair, options)
    rest = available - states.committed - states.verify
    itemsize = options.kv_itemsize
    target_cell = pair.target.attention.bytes_per_token(itemsize)
    layers = pair.target.attention.layers
    cell, drafter_cell = target_cell, 0
    if pair.drafter is not None:
        # The engine reckons with a layer of the drafter as large as one of the target, and then
        # gives it what it needs (dflash_utils.scale_kv_cell_size_per_token_for_dflash).
        cell = -(-target_cell * (layers + pair.drafter.attention.layers) // max(layers, 1))
        drafter_cell = pair.drafter.attention.bytes_per_token(itemsize)
    tokens = max(0, rest // cell) // options.page_size * options.page_size
    tokens = min(tokens, options.max_total_tokens or tokens)

    asked = options.max_running_requests
    running = min(asked or _estimated_requests(tokens, options.context_length), tokens // 2)
    if states.size:
        running = min(running, states.slots // states.per_request)
    target_kv, drafter_kv = tokens * target_cell, tokens * drafter_cell
    # A drafter with larger layers than the target's eats into the reserve.
    unused = max(0, rest - target_kv - drafter_kv)
    division = Division(
        capacity=capacity,
        runtime=capacity - free,
        target_weights=pair.target_bytes,
        drafter_weights=pair.drafter_bytes,
        recurrent_states=states.committed,
        verify_states=states.verify,
        target_kv=target_kv,
        drafter_kv=drafter_kv,
        reserve=reserve + min(0, rest - target_kv - drafter_kv),
        buffers=buffers(capacity, pair, options, running) if running > 0 else (),
        unused=unused,
        fraction=fraction,
        estimated_reserve=estimated,
        rows=options.rows,
        state=states.size,
        slots=states.slots,
        slots_per_request=states.per_request if states.size else 0,
        asked=asked,
        running=max(0, running),
        kv_tokens=tokens,
        refusal=None,
    )
    return replace(division, refusal=_refusal(division, available, states, options))


def largest_budget(
    capacity: int, pair: Pair, options: EngineOptions, *, requests: int = 1, context: int = 1
) -> int | None:
    """Nodes besides the root with which these options start and `requests` of `context` tokens run
    at once; None if there is none.

    Every budget is tried: a larger one leaves fewer slots for states, and so, in steps, sometimes
    more keys and values.
    """
    fitting = [
        budget
        for budget in range(1, MAX_BUDGET + 1)
        if divide(capacity, pair, replace(options, budget=budget)).holds(requests, context)
    ]
    return max(fitting, default=None)


def largest_concurrency(
    capacity: int, pair: Pair, options: EngineOptions, *, context: int = 1
) -> int | None:
    """Requests of `context` tokens at once, by these options; None if not even one fits."""
    fits, too_many = 0, _MOST_REQUESTS + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        division = divide(capacity, pair, replace(options, max_running_requests=middle))
        fits, too_many = (middle, too_many) if division.holds(middle, context) else (fits, middle)
    return fits or None


@dataclass(frozen=True, slots=True)
class _States:
    """The pools of recurrent states (mem_cache/memory_pool.MambaPool), a padding row in each."""

    size: int
    per_request: int
    slots: int
    verify_requests: int
    committed: int
    verify: int

    @classmethod
    def of(cls, available: int, pair: Pair, options: EngineOptions) -> _States:
        if pair.target.recurrence is None:
            return cls(0, 1, 0, 0, 0, 0)
        size = pair.target.recurrence.state_bytes(options.ssm_itemsize(pair.target))
        per_request = options.slots_per_request(pair.target)
        nodes = options.rows if options.algorithm != "none" else 0
        asked = options.max_running_requests
        if options.max_mamba_cache_size is not None:
            slots = options.max_mamba_cache_size
        elif options.disable_radix_cache and asked is not None:
            slots = asked
        else:
            ratio = options.mamba_full_memory_ratio
            share = int(available * ratio / (1 + ratio))
            # (K + 1) states and (K / per_request + 1) x nodes of them, in this share.
            slots = int((share - size * (1 + nodes)) // (size * (1 + nodes / per_request)))
        running = max(0, slots // per_request)
        running = running if asked is None else min(asked, running)
        verify = size * (running + 1) * nodes
        return cls(size, per_request, slots, running, (max(0, slots) + 1) * size, verify)


def _refusal(
    division: Division, available: int, states: _States, options: EngineOptions
) -> str | None:
    if options.budget is not None and options.budget > MAX_BUDGET:
        return f"the patch set takes budgets up to {MAX_BUDGET}, not {options.budget}"
    if available <= 0:
        return "the weights leave no memory for caches"
    left = available - states.verify
    # The patch set's own check (patches/ddtree/arguments.refuse_states_beyond_memory).
    fits = states.slots >= states.per_request and left > states.committed
    if states.size and options.tree and not fits:
        largest = _largest_for_states(available, states, options)
        told = (
            f"the largest budget that fits is {largest}, for one request at a time"
            if largest >= 1
            else "no budget fits"
        )
        return (
            f"a budget of {options.rows - 1} keeps {options.rows} recurrent states of "
            f"{states.size / MIB:.3g} MiB per running request, more than fits in "
            f"{available / GIB:.1f} GiB; {told}"
        )
    if states.size and states.slots <= 0:
        return f"no recurrent state fits in {available / GIB:.1f} GiB"
    if division.kv_tokens <= 0:
        return "nothing is left for keys and values"
    if division.running <= 0:
        return (
            f"{states.slots} recurrent states are too few for one request, which takes "
            f"{states.per_request}"
        )
    return None


def _largest_for_states(available: int, states: _States, options: EngineOptions) -> int:
    share, most = 1.0, MAX_BUDGET
    if not options.disable_radix_cache and options.max_mamba_cache_size is None:
        share = options.mamba_full_memory_ratio / (1 + options.mamba_full_memory_ratio)
        # The engine chose how many requests run, and has tried one.
        most = options.rows - 2
    nodes = int((share * available / states.size - states.per_request - 1) // 2)
    return min(nodes - 1, most)


def _estimated_requests(tokens: int, context: int) -> int:
    """resolve_max_num_reqs, where nothing is asked for."""
    return max(min(tokens * 512 // context, 4096), 2048)
