"""The measuring itself: warm-up until steady, then rounds of interleaved pairs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import DdtreeError, Unhealthy
from ..output.progress import step
from .answer import Arm, Clock, Shape, ask_streamed, ask_whole
from .counters import SETTLE_S, WATCH_S, Watch, refuse_busy
from .measurement import Measurement, Round, Twin
from .prompts import Prompt
from .schedule import round_order
from .stats import geometric_mean

STEADY_PASSES = 3
STEADY_WITHIN = 0.05
"""Warm is an arm whose last STEADY_PASSES passes differ by no more than this from each other."""
MOST_PASSES = 8
"""Warm-up ends here, steady or not."""
MOST_ROUNDS = 2
"""Disturbed rounds are replaced until this many times the rounds asked for have run."""


@dataclass(frozen=True, slots=True)
class Settings:
    rounds: int
    seed: int
    shape: Shape
    busy_ok: bool = False


@dataclass(slots=True)
class Run:
    """Everything that was measured so far."""

    prompts: tuple[Prompt, ...]
    settings: Settings
    arms: tuple[str, str]
    twins: list[Twin] = field(default_factory=list)
    warm_up: dict[str, list[float]] = field(default_factory=dict)
    """Per arm, the rate of each pass: geometric mean over the prompts, tok/s."""
    rounds: list[Round] = field(default_factory=list)
    status: str = "running"
    """`running`, `complete`, `invalid` (an engine failed) or `interrupted`."""
    reason: str = ""

    @property
    def counted(self) -> tuple[Round, ...]:
        """The rounds that the figures rest on."""
        if self.settings.busy_ok:
            return tuple(self.rounds)
        return tuple(done for done in self.rounds if not done.disturbed)

    def steady(self, arm: str) -> bool:
        last = self.warm_up.get(arm, [])[-STEADY_PASSES:]
        return len(last) == STEADY_PASSES and max(last) <= min(last) * (1 + STEADY_WITHIN)


def measure(
    run: Run,
    arms: tuple[Arm, Arm],
    *,
    on_change: Callable[[], None] = lambda: None,
    clock: Clock = time.perf_counter,
) -> None:
    """Fill `run`. `on_change` is called after the warm-up, after every round and at the end.

    Whatever ends it early (an engine that dies, Ctrl-C) is raised again, after `run` was marked
    and `on_change` was called.
    """
    try:
        _measure(run, arms, on_change, clock)
        run.status = "complete"
    except KeyboardInterrupt:
        run.status, run.reason = "interrupted", f"interrupted after {len(run.rounds)} rounds"
        raise
    except DdtreeError as error:
        run.status, run.reason = "invalid", str(error)
        raise
    finally:
        on_change()


def _measure(run: Run, arms: tuple[Arm, Arm], on_change: Callable[[], None], clock: Clock) -> None:
    settings = run.settings
    if not settings.busy_ok:
        with step("check that both arms are idle"):
            for arm in arms:
                refuse_busy(arm.engine, arm.title)
    settle_s = WATCH_S / 5 if settings.busy_ok else SETTLE_S
    watches = {arm.name: Watch(arm.engine, settle_s=settle_s) for arm in arms}
    _warm_up(run, arms, clock)
    on_change()
    for arm in arms:
        watches[arm.name].skip(len(run.prompts) * (1 + len(run.warm_up[arm.name])))
    by_name = {arm.name: arm for arm in arms}
    for index in range(settings.rounds * MOST_ROUNDS):
        if len(run.counted) >= settings.rounds:
            return
        title = f"round {index + 1}" + (f" of {settings.rounds}" * (index < settings.rounds))
        with step(title) as say:
            done = _round(run, index, by_name, watches, clock)
            run.rounds.append(done)
            rates = ", ".join(_told(done.measurements, name) for name in by_name)
            say(rates + (f"; disturbed: {done.disturbed[0]}" if done.disturbed else ""))
        on_change()


def _warm_up(run: Run, arms: tuple[Arm, Arm], clock: Clock) -> None:
    seed = run.settings.seed
    with step("warm-up") as say:
        for arm in arms:
            for prompt in run.prompts:
                twin = ask_whole(arm, prompt.text, run.settings.shape, prompt.id, seed=seed)
                run.twins.append(twin)
        _refuse_other_prompts(run.twins, arms)
        run.warm_up = {arm.name: [] for arm in arms}
        for _ in range(MOST_PASSES):
            for arm in arms:
                rates = [
                    ask_streamed(
                        arm, prompt.text, run.settings.shape, seed=seed, clock=clock
                    ).decode_tok_s
                    for prompt in run.prompts
                ]
                run.warm_up[arm.name].append(_pass_rate(rates, arm))
            if all(run.steady(arm.name) for arm in arms):
                break
        passes = len(run.warm_up[arms[0].name])
        unsteady = [arm.name for arm in arms if not run.steady(arm.name)]
        say(f"{passes} passes, {' and '.join(unsteady) + ' not ' if unsteady else ''}steady")


def _round(
    run: Run, index: int, arms: Mapping[str, Arm], watches: Mapping[str, Watch], clock: Clock
) -> Round:
    settings = run.settings
    texts = {prompt.id: prompt.text for prompt in run.prompts}
    disturbed: list[str] = []
    measurements: list[Measurement] = []
    for arm in arms.values():
        watches[arm.name].skip(0)
        # A prompt that is still in the prefix cache from the last round would flatter its TTFT.
        if not arm.engine.flush_cache():
            disturbed.append(f"{arm.name}: busy when its cache was to be flushed")
    for pair in round_order(index, list(texts), run.arms, seed=settings.seed):
        for position, name in enumerate(pair.arms):
            started_at = time.time()
            seed = settings.seed + 1 + index
            timing = ask_streamed(
                arms[name], texts[pair.prompt], settings.shape, seed=seed, clock=clock
            )
            moved = watches[name].account(timing.tokens)
            if moved.strangers:
                disturbed.append(f"{name}, {pair.prompt}: {moved.strangers}")
            measurements.append(
                Measurement(
                    arm=name,
                    prompt=pair.prompt,
                    position=position,
                    started_at=started_at,
                    timing=timing,
                    verify_steps=moved.verify_steps,
                    off_spine=moved.off_spine,
                    cached_tokens=moved.cached_tokens,
                )
            )
    return Round(index, tuple(measurements), tuple(disturbed), os.getloadavg()[0])


def _refuse_other_prompts(twins: Sequence[Twin], arms: tuple[Arm, Arm]) -> None:
    """The same words are as many tokens on both arms, or they are two different models."""
    lengths = {(twin.arm, twin.prompt): twin.prompt_tokens for twin in twins}
    for twin in twins:
        other = lengths[arms[0].name, twin.prompt]
        if twin.prompt_tokens != other:
            raise Unhealthy(
                f"it reads the prompt {twin.prompt} as {twin.prompt_tokens} tokens, and "
                f"{arms[0].title} as {other}: another model or chat template",
                where=arms[1].title,
            )


def _pass_rate(rates: Sequence[float | None], arm: Arm) -> float:
    known = [rate for rate in rates if rate is not None]
    if not known:
        raise DdtreeError(
            "no answer of this suite has a token after its first chunk: there is no decode rate",
            where=arm.title,
            mend="take longer prompts, or a larger --max-tokens",
        )
    return geometric_mean(known)


def _told(measurements: Sequence[Measurement], arm: str) -> str:
    rates = [m.timing.decode_tok_s for m in measurements if m.arm == arm]
    known = [rate for rate in rates if rate is not None]
    return f"{arm} {geometric_mean(known):.1f} tok/s" if known else f"{arm} no rate"
