"""One linear service against one tree service, by the project's own benchmark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from ddtree_ops_cli.bench.answer import Shape
from ddtree_ops_cli.bench.comparison import Comparison, compare
from ddtree_ops_cli.bench.measurement import Round
from ddtree_ops_cli.bench.prompts import Prompt
from ddtree_ops_cli.bench.run import Run, Settings, measure
from ddtree_ops_cli.bench.stats import CONFIDENCE, Ratio, paired_ratio
from ddtree_ops_cli.bench.turns import Seat, measure_in_turns
from ddtree_ops_cli.bench.verdict import cautions, verdict
from ddtree_ops_cli.errors import DdtreeError

from .running import Running

ARMS = ("tree", "linear")
_COLUMNS = (
    "round", "arm", "prompt", "position", "tokens", "ttft_s", "decode_tok_s", "step_ms",
    "verify_steps", "off_spine",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Load:
    """What a contest sends."""

    prompts: tuple[Prompt, ...]
    rounds: int
    max_tokens: int
    ignore_eos: bool
    seed: int = 0

    @property
    def settings(self) -> Settings:
        options = {"ignore_eos": True} if self.ignore_eos else {}
        return Settings(self.rounds, self.seed, Shape(self.max_tokens, 0.0, options))


def contest(linear: Running, tree: Running, load: Load) -> Run:
    """Both arms warmed up and measured in interleaved pairs. Raises what `measure` raises."""
    run = Run(load.prompts, load.settings, ARMS)
    measure(run, (tree.arm, linear.arm))
    return run


def contest_in_turns(seat: Seat, load: Load, on_change: Callable[[Run], None]) -> Run:
    """The same of two arms that are never there at once; each block is a start of its own."""
    run = Run(load.prompts, load.settings, ARMS, in_turns=True)
    measure_in_turns(run, seat, on_change=lambda: on_change(run))
    return run


def joined(first: Run, second: Run) -> Run:
    """Two halves with the same prompts and settings, as one run; the first half's twins."""
    rounds = [
        *first.rounds,
        *(
            Round(len(first.rounds) + number, done.measurements, done.disturbed, done.load)
            for number, done in enumerate(second.rounds)
        ),
    ]
    return Run(
        first.prompts,
        first.settings,
        first.arms,
        twins=first.twins,
        warm_ups=[*first.warm_ups, *second.warm_ups],
        rounds=rounds,
        status="complete",
    )


def compared(run: Run) -> Comparison | None:
    """None where every round was disturbed."""
    if not run.counted:
        return None
    ids = [prompt.id for prompt in run.prompts]
    return compare(run.arms, ids, run.counted, run.twins, greedy=True)


def step_ratio(run: Run) -> Ratio | None:
    """Milliseconds per verify step, tree over linear, paired by round as the rates are.

    None where no round knows the steps of all its answers.
    """
    logs, first = [], []
    for done in run.counted:
        steps = {(one.arm, one.prompt): one.step_ms for one in done.measurements}
        pairs = [(steps[ARMS[0], one.id], steps[ARMS[1], one.id]) for one in run.prompts]
        known = [(tree, linear) for tree, linear in pairs if tree and linear]
        if len(known) == len(pairs):
            logs.append(fmean(math.log(tree / linear) for tree, linear in known))
            leads = [one for one in done.measurements if one.arm == ARMS[0]]
            first.append(fmean(1.0 if one.position == 0 else -1.0 for one in leads))
    return paired_ratio(logs, first) if logs else None


def verify_off_spine(run: Run, title: str) -> None:
    """DdtreeError where drafts that were to be accepted off the spine are on it."""
    trees = [twin.acceptance for twin in run.twins if twin.arm == ARMS[0]]
    if not all(found is not None and found.off_spine for found in trees):
        raise DdtreeError(
            "its accepted drafts are on the spine: its patch set does not force them off it",
            where=title,
        )


def document(run: Run) -> dict[str, Any]:
    comparison = compared(run)
    return {
        "status": run.status,
        "reason": run.reason,
        "prompts": [prompt.id for prompt in run.prompts],
        "max_tokens": run.settings.shape.max_tokens,
        "rounds": len(run.rounds),
        "counted": len(run.counted),
        "in_turns": run.in_turns,
        "warm_ups": [asdict(warm) for warm in run.warm_ups],
        "steady": {arm: run.steady(arm) for arm in run.arms},
        "disturbed": [done.disturbed[0] for done in run.rounds if done.disturbed],
        "method": "paired by round, log ratios adjusted for the order in the pair, "
        f"Student's t, {CONFIDENCE:.0%}",
        "step_ms": {arm: _median_step(run.counted, arm) for arm in run.arms},
        "step_ratio": _ratio(step_ratio(run)),
        "comparison": None if comparison is None else asdict(comparison),
        "in_words": [] if comparison is None else [verdict(comparison), *cautions(comparison, run)],
        "twins": [
            {"arm": twin.arm, "prompt": twin.prompt, "tokens": twin.tokens, "text": twin.text[:80]}
            | ({} if twin.acceptance is None else asdict(twin.acceptance))
            for twin in run.twins
        ],
        "measurements": {"columns": _COLUMNS, "rows": _rows(run.rounds)},
    }


def _rows(rounds: Sequence[Round]) -> list[list[float | int | str | None]]:
    """One line of numbers an answer, in the order in which they were given."""
    return [
        [
            done.index,
            one.arm,
            one.prompt,
            one.position,
            one.timing.tokens,
            _rounded(one.timing.ttft_s),
            _rounded(one.timing.decode_tok_s),
            _rounded(one.step_ms),
            one.verify_steps,
            one.off_spine,
        ]
        for done in rounds
        for one in done.measurements
    ]


def _rounded(value: float | None) -> float | None:
    """To six digits: more is not in a clock."""
    return None if value is None else float(f"{value:.6g}")


def _median_step(rounds: Sequence[Round], arm: str) -> float | None:
    found = [
        one.step_ms
        for done in rounds
        for one in done.measurements
        if one.arm == arm and one.step_ms is not None
    ]
    return median(found) if found else None


def _ratio(ratio: Ratio | None) -> dict[str, float | int | None] | None:
    return None if ratio is None else asdict(ratio)
