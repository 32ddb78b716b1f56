"""The measuring itself: warm-up until steady, then rounds in which every prompt runs on both arms.

Here for two arms that are there at once, so that each prompt runs on one right after the other;
`turns` is for two that take turns on one GPU.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..errors import DdtreeError, Interrupted, Unhealthy
from ..interrupts import shielded
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
class WarmUp:
    """One arm, after one start of it or after none."""

    arm: str
    tok_s: list[float] = field(default_factory=list)
    """Of each pass: geometric mean over the prompts."""

    @property
    def steady(self) -> bool:
        last = self.tok_s[-STEADY_PASSES:]
        return len(last) == STEADY_PASSES and max(last) <= min(last) * (1 + STEADY_WITHIN)


@dataclass(slots=True)
class Run:
    """Everything that was measured so far."""

    prompts: tuple[Prompt, ...]
    settings: Settings
    arms: tuple[str, str]
    in_turns: bool = False
    """Whether the arms took turns on one GPU."""
    twins: list[Twin] = field(default_factory=list)
    warm_ups: list[WarmUp] = field(default_factory=list)
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
        """Whether it was, after each of its starts."""
        found = [warm.steady for warm in self.warm_ups if warm.arm == arm]
        return bool(found) and all(found)

    def missing(self) -> Iterator[int]:
        """The indices of rounds that are still to be measured, replacements included."""
        for index in range(self.settings.rounds * MOST_ROUNDS):
            if len(self.counted) >= self.settings.rounds:
                return
            yield index

    def title(self, index: int) -> str:
        rounds = self.settings.rounds
        return f"round {index + 1}" + (f" of {rounds}" * (index < rounds))


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
    with marked(run, on_change):
        refuse_busy_arms(run, arms)
        with step("warm-up") as say:
            watches = warm_up(run, arms, clock)
            say(told_warm(run.warm_ups))
        on_change()
        by_name = {arm.name: arm for arm in arms}
        for index in run.missing():
            with step(run.title(index)) as say:
                done = _round(run, index, by_name, watches, clock)
                run.rounds.append(done)
                say(told(done, run.arms))
            on_change()


@contextmanager
def marked(run: Run, on_change: Callable[[], None]) -> Iterator[None]:
    """Give `run` its status at the end of the body, however it ends."""
    try:
        yield
        run.status = "complete"
    except (KeyboardInterrupt, Interrupted):
        run.status, run.reason = "interrupted", f"interrupted after {len(run.rounds)} rounds"
        raise
    except DdtreeError as error:
        run.status, run.reason = "invalid", str(error)
        raise
    finally:
        with shielded("writing down what was measured"):
            on_change()


def refuse_busy_arms(run: Run, arms: Sequence[Arm]) -> None:
    if not run.settings.busy_ok:
        with step(f"check that {' and '.join(arm.name for arm in arms)} serve nobody else"):
            for arm in arms:
                refuse_busy(arm.engine, arm.title)


def warm_up(run: Run, arms: Sequence[Arm], clock: Clock) -> dict[str, Watch]:
    """Every prompt whole, if it was not yet, then passes until each of `arms` is steady.

    The watches that come back have seen all of it.
    """
    settings = run.settings
    settle_s = WATCH_S / 5 if settings.busy_ok else SETTLE_S
    watches = {arm.name: Watch(arm.engine, settle_s=settle_s) for arm in arms}
    asked = {arm.name: _ask_twins(run, arm) for arm in arms}
    warm = {arm.name: WarmUp(arm.name) for arm in arms}
    run.warm_ups += warm.values()
    for _ in range(MOST_PASSES):
        for arm in arms:
            rates = [
                ask_streamed(
                    arm, prompt.text, settings.shape, seed=settings.seed, clock=clock
                ).decode_tok_s
                for prompt in run.prompts
            ]
            asked[arm.name] += len(rates)
            warm[arm.name].tok_s.append(_pass_rate(rates, arm))
        if all(one.steady for one in warm.values()):
            break
    for name, watch in watches.items():
        watch.skip(asked[name])
    return watches


def flush(arm: Arm, watch: Watch) -> list[str]:
    """Empty the arm's cache before it is measured; what disturbs the round, if anything.

    A prompt that is still in the prefix cache from the last round would flatter its TTFT.
    """
    watch.skip(0)
    if arm.engine.flush_cache():
        return []
    return [f"{arm.name}: busy when its cache was to be flushed"]


def ask(
    run: Run, arm: Arm, watch: Watch, prompt: str, *, index: int, position: int, clock: Clock
) -> tuple[Measurement, list[str]]:
    """One measured answer, and what disturbs its round, if anything."""
    settings = run.settings
    text = next(known.text for known in run.prompts if known.id == prompt)
    started_at = time.time()
    timing = ask_streamed(arm, text, settings.shape, seed=settings.seed + 1 + index, clock=clock)
    moved = watch.account(timing.tokens)
    found = Measurement(
        arm=arm.name,
        prompt=prompt,
        position=position,
        started_at=started_at,
        timing=timing,
        verify_steps=moved.verify_steps,
        off_spine=moved.off_spine,
        cached_tokens=moved.cached_tokens,
    )
    return found, [f"{arm.name}, {prompt}: {moved.strangers}"] if moved.strangers else []


def told(done: Round, arms: Sequence[str]) -> str:
    """A round in a few words."""
    rates = ", ".join(_told_rate(done.measurements, arm) for arm in arms)
    return rates + (f"; disturbed: {done.disturbed[0]}" if done.disturbed else "")


def told_warm(warm: Sequence[WarmUp]) -> str:
    unsteady = [one.arm for one in warm if not one.steady]
    steady = f"{' and '.join(unsteady)} not steady" if unsteady else "steady"
    return f"{len(warm[0].tok_s)} passes, {steady}"


def _round(
    run: Run, index: int, arms: Mapping[str, Arm], watches: Mapping[str, Watch], clock: Clock
) -> Round:
    disturbed = [why for name, arm in arms.items() for why in flush(arm, watches[name])]
    measurements: list[Measurement] = []
    ids = [prompt.id for prompt in run.prompts]
    for pair in round_order(index, ids, run.arms, seed=run.settings.seed):
        for position, name in enumerate(pair.arms):
            found, why = ask(
                run, arms[name], watches[name], pair.prompt,
                index=index, position=position, clock=clock,
            )  # fmt: skip
            measurements.append(found)
            disturbed += why
    return Round(index, tuple(measurements), tuple(disturbed), os.getloadavg()[0])


def _ask_twins(run: Run, arm: Arm) -> int:
    """How many were asked: none if the arm was asked before."""
    if any(twin.arm == arm.name for twin in run.twins):
        return 0
    known = {twin.prompt: twin for twin in run.twins}
    for prompt in run.prompts:
        twin = ask_whole(arm, prompt.text, run.settings.shape, prompt.id, seed=run.settings.seed)
        _refuse_other_prompt(twin, known.get(prompt.id), arm)
        run.twins.append(twin)
    return len(run.prompts)


def _refuse_other_prompt(twin: Twin, other: Twin | None, arm: Arm) -> None:
    """The same words are as many tokens on both arms, or they are two different models."""
    if other is not None and twin.prompt_tokens != other.prompt_tokens:
        raise Unhealthy(
            f"it reads the prompt {twin.prompt} as {twin.prompt_tokens} tokens, and "
            f"{other.arm} as {other.prompt_tokens}: another model or chat template",
            where=arm.title,
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


def _told_rate(measurements: Sequence[Measurement], arm: str) -> str:
    rates = [m.timing.decode_tok_s for m in measurements if m.arm == arm]
    known = [rate for rate in rates if rate is not None]
    return f"{arm} {geometric_mean(known):.1f} tok/s" if known else f"{arm} no rate"
