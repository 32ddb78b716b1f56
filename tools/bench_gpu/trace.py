"""What a PyTorch trace says about one decode step: busy time, kernels, idle gaps.

The trace is Chrome's format as torch.profiler writes it: complete events with `cat`, `name`, `ts`
and `dur` in microseconds. Only what ran on the device is read.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from ddtree_ops_cli.errors import DdtreeError

DEVICE_EVENTS = ("kernel", "gpu_memcpy", "gpu_memset")
LONG_GAP_US = 5.0
"""Shorter pauses are the launch latency inside a CUDA graph."""
_LONGEST_NAME = 100
_TOP = 40

# The first that matches names the family.
_FAMILIES = (
    ("tree", r"_best_first_tree|_tree_mask|_accepted_path|_rank_parts|_merge_parts|verify_?tree"),
    ("matrix products", r"gemm|gemv|nvjet|cutlass|cublas|splitk|xmma"),
    ("gated DeltaNet", r"gating|delta_rule|gated_delta|fused_recurrent|chunk_(fwd|gated|local)"),
    ("convolution", r"conv1d"),
    ("attention", r"attention|attn|_fwd_kernel|_fwd_grouped|flash|stage[12]"),
    ("norms", r"norm"),
    ("rotary", r"rotary|rope"),
    (
        "states and cache",
        r"commit|mamba|kv_cache|copy_all_layer|scatter|set_kv|store_cache|kv_indices",
    ),
    ("sampling", r"topk|sort|softmax|argmax|sampl"),
    ("activation", r"silu|act_and_mul|sigmoid"),
    ("copies", r"memcpy|memset|copy"),
    ("element-wise", r"elementwise|vectorized|index|reduce|cat|arange|fill|where"),
)


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel, copy or fill on the device; times in microseconds."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Share:
    name: str
    ms: float
    """Per step, streams added up."""
    alone_ms: float
    """Per step, of that the time in which nothing else ran."""
    calls: float
    """Per step."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Pauses of the device between the same two kernels."""

    after: str
    before: str
    ms: float
    """Per step."""
    calls: float
    """Per step."""


@dataclass(frozen=True, slots=True)
class StepProfile:
    steps: int
    """Whole ones in the window that is counted."""
    marker: str | None
    """The kernel, once a step, from whose first start to whose last start is counted; None: there
    is none, and the whole trace stands for the steps that were asked for."""
    step_ms: float
    busy_ms: float
    """At least one stream works."""
    launches: float
    families: tuple[Share, ...]
    kernels: tuple[Share, ...]
    """The longest ones."""
    gaps: tuple[Gap, ...]
    """The longest of those above LONG_GAP_US."""

    @property
    def idle_ms(self) -> float:
        return self.step_ms - self.busy_ms


def profile_file(file: Path, asked: int) -> StepProfile | None:
    """Of a packed trace; None while it is still being written. DdtreeError as `profile_steps`."""
    try:
        with gzip.open(file, "rt", encoding="utf-8") as text:
            events = json.load(text)["traceEvents"]
    except (EOFError, ValueError, OSError):
        return None
    return profile_steps(device_work(events), asked)


def device_work(events: Iterable[Mapping[str, Any]]) -> list[Work]:
    """By start."""
    found = [
        Work(str(event["name"]), float(event["ts"]), float(event["ts"]) + float(event["dur"]))
        for event in events
        if event.get("cat") in DEVICE_EVENTS and event.get("ph", "X") == "X"
    ]
    return sorted(found, key=lambda work: work.start)


def profile_steps(work: Sequence[Work], asked: int) -> StepProfile:
    """Of a trace over about `asked` decode steps. DdtreeError if nothing ran on the device."""
    if not work:
        raise DdtreeError("no device work in the trace")
    starts = _marker(work, asked)
    if starts is None:
        marker, steps = None, asked
        begin, end = work[0].start, max(one.end for one in work)
    else:
        marker, times = starts
        begin, end, steps = times[0], times[-1], len(times) - 1
    inside = [
        Work(one.name, max(one.start, begin), min(one.end, end))
        for one in work
        if one.end > begin and one.start < end
    ]
    busy, gaps = _busy(inside, begin, end)
    total: defaultdict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    for one in inside:
        total[one.name] += one.end - one.start
        calls[one.name] += 1
    alone = _alone(inside)

    def share(name: str, names: Iterable[str]) -> Share:
        found = list(names)
        return Share(
            name[:_LONGEST_NAME],
            sum(total[one] for one in found) / 1e3 / steps,
            sum(alone[one] for one in found) / 1e3 / steps,
            sum(calls[one] for one in found) / steps,
        )

    families: defaultdict[str, list[str]] = defaultdict(list)
    for name in total:
        families[family(name)].append(name)
    longest = sorted(total, key=lambda name: -total[name])[:_TOP]
    return StepProfile(
        steps=steps,
        marker=None if marker is None else marker[:_LONGEST_NAME],
        step_ms=(end - begin) / 1e3 / steps,
        busy_ms=busy / 1e3 / steps,
        launches=len(inside) / steps,
        families=tuple(
            sorted((share(*one) for one in families.items()), key=lambda found: -found.ms)
        ),
        kernels=tuple(share(name, [name]) for name in longest),
        gaps=_gaps(gaps, steps),
    )


def family(name: str) -> str:
    low = name.lower()
    return next((found for found, pattern in _FAMILIES if re.search(pattern, low)), "other")


def _marker(work: Sequence[Work], asked: int) -> tuple[str, list[float]] | None:
    """The kernel that comes once a step, most evenly of all that do."""
    starts: defaultdict[str, list[float]] = defaultdict(list)
    for one in work:
        starts[one.name].append(one.start)
    # Profilers cut a step off at either end.
    likely = {
        name: times
        for name, times in starts.items()
        if max(3, asked - 2) <= len(times) <= asked + 1
    }

    def unevenness(times: Sequence[float]) -> float:
        pauses = [after - before for before, after in pairwise(times)]
        mean = fmean(pauses)
        return pstdev(pauses) / mean if mean else float("inf")

    if not likely:
        return None
    name = min(likely, key=lambda found: unevenness(likely[found]))
    return name, likely[name]


def _busy(
    inside: Sequence[Work], begin: float, end: float
) -> tuple[float, list[tuple[float, str, str]]]:
    """Time in which something ran, and the pauses: length, what came before, what after."""
    busy, reached, last = 0.0, begin, "the step's begin"
    gaps = []
    for one in sorted(inside, key=lambda found: found.start):
        if one.start > reached:
            gaps.append((one.start - reached, last, one.name))
        if one.end > reached:
            busy += one.end - max(one.start, reached)
            reached, last = one.end, one.name
    if end > reached:
        gaps.append((end - reached, last, "the step's end"))
    return busy, gaps


def _alone(inside: Sequence[Work]) -> defaultdict[str, float]:
    """By name, the microseconds in which it was all that ran."""
    lasting = [(number, one) for number, one in enumerate(inside) if one.end > one.start]
    edges = [(one.start, 1, number) for number, one in lasting]
    # At the same moment ends come first.
    edges += [(one.end, 0, number) for number, one in lasting]
    found: defaultdict[str, float] = defaultdict(float)
    running: set[int] = set()
    before = 0.0
    for at, begins, number in sorted(edges):
        if len(running) == 1:
            (only,) = running
            found[inside[only].name] += at - before
        if begins:
            running.add(number)
        else:
            running.discard(number)
        before = at
    return found


def _gaps(gaps: Sequence[tuple[float, str, str]], steps: int) -> tuple[Gap, ...]:
    ms: defaultdict[tuple[str, str], float] = defaultdict(float)
    calls: Counter[tuple[str, str]] = Counter()
    for us, after, before in gaps:
        if us > LONG_GAP_US:
            pair = (after[:_LONGEST_NAME], before[:_LONGEST_NAME])
            ms[pair] += us / 1e3 / steps
            calls[pair] += 1
    longest = sorted(ms, key=lambda pair: -ms[pair])[:_TOP]
    return tuple(Gap(*pair, ms[pair], calls[pair] / steps) for pair in longest)
