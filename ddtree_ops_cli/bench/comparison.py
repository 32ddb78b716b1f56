"""What the measurements of two arms say, side by side. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from ..engine_api.acceptance import Acceptance, merged
from .measurement import Measurement, Round, Timing, Twin
from .stats import Ratio, geometric_mean, paired_ratio

LEAST_ROUNDS = 10
"""Fewer counted rounds than this give no verdict."""

Verdict = Literal["faster", "slower", "no difference", "too few rounds", "no decode rate"]


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm, on one prompt or on all; None for what it has not."""

    decode_tok_s: float | None
    """Median over the rounds; overall, of the geometric mean over the prompts."""
    step_ms: float | None
    accept_length: float | None
    off_spine_share: float | None
    """Of the accepted drafts."""
    ttft_s: float
    tokens: float
    """Of an answer, median."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Whether both arms answer the same; only asked of greedy answers."""

    identical: int
    """Rounds in which the two texts are the same."""
    rounds: int
    character: int | None
    """Where the texts of the first round that differs part; None if none does."""
    token: int | None
    """Where the token ids of the two twins part; None if they do not, or are not known."""

    @property
    def same(self) -> bool:
        return self.identical == self.rounds and self.token is None


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt, or all of them."""

    prompt: str
    arms: Mapping[str, Figures]
    ratio: Ratio | None
    """Decode rate of the first arm over that of the second; None without a rate in both."""
    agreement: Agreement | None


@dataclass(frozen=True, slots=True)
class Comparison:
    first: str
    second: str
    rounds: int
    """Counted ones."""
    prompts: tuple[Row, ...]
    overall: Row
    left_out: tuple[str, ...]
    """Prompts without a rate in every counted round: they are not in the overall ratio."""
    verdict: Verdict
    repeats: float | None
    """Share of the measurements whose verify steps are those of their twin; None if unknown."""


def compare(
    arms: tuple[str, str],
    prompts: Sequence[str],
    rounds: Sequence[Round],
    twins: Iterable[Twin],
    *,
    greedy: bool,
) -> Comparison:
    """Compare the first arm with the second over at least one round that counts."""
    seen = _Seen(arms, rounds, twins, greedy)
    logs = {prompt: seen.log_ratios(prompt) for prompt in prompts}
    whole = [prompt for prompt in prompts if len(logs[prompt]) == len(rounds)]
    overall = Row(
        prompt="overall",
        arms={arm: _figures(seen, arm, prompts, seen.mean_rates(arm, whole)) for arm in arms},
        ratio=_ratio(
            {done.index: fmean(logs[prompt][done.index] for prompt in whole) for done in rounds}
            if whole
            else {},
            lambda index: fmean(seen.went_first(index, prompt) for prompt in whole),
        ),
        agreement=None,
    )
    return Comparison(
        first=arms[0],
        second=arms[1],
        rounds=len(rounds),
        prompts=tuple(_row(seen, prompt, logs[prompt]) for prompt in prompts),
        overall=overall,
        left_out=tuple(prompt for prompt in prompts if prompt not in whole),
        verdict=_verdict(overall.ratio, len(rounds)),
        repeats=_repeats(seen) if greedy else None,
    )


def first_difference(one: Sequence[object], other: Sequence[object]) -> int | None:
    """The first index at which two texts or token lists part; None if they are equal."""
    if one == other:
        return None
    together = zip(one, other, strict=False)
    shorter = min(len(one), len(other))
    return next((index for index, (a, b) in enumerate(together) if a != b), shorter)


class _Seen:
    """The measurements by round, prompt and arm."""

    def __init__(
        self,
        arms: tuple[str, str],
        rounds: Sequence[Round],
        twins: Iterable[Twin],
        greedy: bool,
    ) -> None:
        self.arms = arms
        self.rounds = rounds
        self.greedy = greedy
        self.twins = {(twin.arm, twin.prompt): twin for twin in twins}
        self.all = {
            (done.index, one.prompt, one.arm): one for done in rounds for one in done.measurements
        }

    def of(self, arm: str, prompts: Sequence[str]) -> list[Measurement]:
        return [self.all[done.index, prompt, arm] for done in self.rounds for prompt in prompts]

    def pair(self, index: int, prompt: str) -> list[Timing]:
        return [self.all[index, prompt, arm].timing for arm in self.arms]

    def log_ratios(self, prompt: str) -> dict[int, float]:
        """By round, where both arms have a rate."""
        found = {}
        for done in self.rounds:
            first, second = (one.decode_tok_s for one in self.pair(done.index, prompt))
            if first is not None and second is not None:
                found[done.index] = math.log(first / second)
        return found

    def mean_rates(self, arm: str, prompts: Sequence[str]) -> list[float]:
        """By round, the geometric mean over prompts that all have a rate."""
        return [
            geometric_mean(
                rate
                for prompt in prompts
                if (rate := self.all[done.index, prompt, arm].timing.decode_tok_s) is not None
            )
            for done in self.rounds
            if prompts
        ]

    def went_first(self, index: int, prompt: str) -> float:
        """1 if the first arm did, -1 if the second."""
        return 1.0 if self.all[index, prompt, self.arms[0]].position == 0 else -1.0


def _row(seen: _Seen, prompt: str, logs: Mapping[int, float]) -> Row:
    def figures(arm: str) -> Figures:
        rates = [
            rate for one in seen.of(arm, [prompt]) if (rate := one.timing.decode_tok_s) is not None
        ]
        return _figures(seen, arm, [prompt], rates)

    return Row(
        prompt=prompt,
        arms={arm: figures(arm) for arm in seen.arms},
        ratio=_ratio(logs, lambda index: seen.went_first(index, prompt)),
        agreement=_agreement(seen, prompt) if seen.greedy else None,
    )


def _ratio(logs: Mapping[int, float], first_share: Callable[[int], float]) -> Ratio | None:
    if not logs:
        return None
    return paired_ratio(list(logs.values()), [first_share(index) for index in logs])


def _figures(seen: _Seen, arm: str, prompts: Sequence[str], rates: Sequence[float]) -> Figures:
    measurements = seen.of(arm, prompts)
    acceptance = _acceptance(seen, arm, prompts)
    steps = [one.step_ms for one in measurements if one.step_ms is not None]
    return Figures(
        decode_tok_s=median(rates) if rates else None,
        step_ms=median(steps) if steps else None,
        accept_length=acceptance.accept_length if acceptance else None,
        off_spine_share=_off_spine_share(acceptance),
        ttft_s=median(one.timing.ttft_s for one in measurements),
        tokens=median(one.timing.tokens for one in measurements),
    )


def _acceptance(seen: _Seen, arm: str, prompts: Sequence[str]) -> Acceptance | None:
    """That of the twins, exact, where answers repeat themselves; else what the counters say."""
    if seen.greedy:
        return merged(seen.twins[arm, prompt].acceptance for prompt in prompts)
    return merged(one.acceptance for one in seen.of(arm, prompts))


def _off_spine_share(acceptance: Acceptance | None) -> float | None:
    if acceptance is None or acceptance.off_spine is None or not acceptance.correct_drafts:
        return None
    return acceptance.off_spine / acceptance.correct_drafts


def _agreement(seen: _Seen, prompt: str) -> Agreement:
    places = []
    for done in seen.rounds:
        one, other = seen.pair(done.index, prompt)
        places.append(first_difference(one.text, other.text))
    ids = [seen.twins[arm, prompt].token_ids for arm in seen.arms]
    return Agreement(
        identical=places.count(None),
        rounds=len(seen.rounds),
        character=next((place for place in places if place is not None), None),
        token=first_difference(*ids) if all(ids) else None,
    )


def _repeats(seen: _Seen) -> float | None:
    same = [
        one.verify_steps == acceptance.verify_steps
        for one in seen.all.values()
        if one.verify_steps is not None
        and (acceptance := seen.twins[one.arm, one.prompt].acceptance) is not None
    ]
    return fmean(same) if same else None


def _verdict(ratio: Ratio | None, rounds: int) -> Verdict:
    if ratio is None:
        return "no decode rate"
    if rounds < LEAST_ROUNDS or ratio.low is None or ratio.high is None:
        return "too few rounds"
    if ratio.low > 1:
        return "faster"
    return "slower" if ratio.high < 1 else "no difference"
