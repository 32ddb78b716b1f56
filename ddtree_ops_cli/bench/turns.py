"""Measuring two arms that take turns on one GPU.

A round is a block of one arm and a block of the other, each all prompts once. Every block has a
start of its arm to itself, because what a start brings (where its memory lies, how warm the GPU is)
is shared by all that is measured after it: two blocks of one start would count its luck twice, and
the interval would be narrower than what is known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import chain

from ..output.progress import step
from .answer import Arm, Clock
from .measurement import Measurement, Round
from .run import Run, ask, flush, marked, refuse_busy_arms, told, told_warm, warm_up
from .schedule import Block, block_order

Seat = Callable[[str], AbstractContextManager[Arm]]
"""The named arm alone on the GPU, freshly started, for the time of the context."""


def measure_in_turns(
    run: Run,
    seat: Seat,
    *,
    on_change: Callable[[], None] = lambda: None,
    clock: Clock = time.perf_counter,
) -> None:
    """Fill `run`, as `measure` does; the first block takes the first arm as it runs already."""
    with marked(run, on_change):
        for index in run.missing():
            ids = [prompt.id for prompt in run.prompts]
            blocks = block_order(index, ids, run.arms, seed=run.settings.seed)
            found = [
                _block(run, seat, block, index, position, clock)
                for position, block in enumerate(blocks)
            ]
            measurements = chain.from_iterable(measured for measured, _ in found)
            disturbed = chain.from_iterable(why for _, why in found)
            run.rounds.append(
                Round(index, tuple(measurements), tuple(disturbed), os.getloadavg()[0])
            )
            on_change()


def _block(
    run: Run, seat: Seat, block: Block, index: int, position: int, clock: Clock
) -> tuple[list[Measurement], list[str]]:
    with seat(block.arm) as arm:
        if not run.warm_ups:
            # Before anything is stopped.
            refuse_busy_arms(run, [arm])
        with step(f"warm-up, {arm.name}") as say:
            watch = warm_up(run, [arm], clock)[arm.name]
            say(told_warm(run.warm_ups[-1:]))
        with step(f"{run.title(index)}, {arm.name}") as say:
            disturbed = flush(arm, watch)
            measurements = []
            for prompt in block.prompts:
                found, why = ask(
                    run, arm, watch, prompt, index=index, position=position, clock=clock
                )
                measurements.append(found)
                disturbed += why
            say(told(Round(index, tuple(measurements), tuple(disturbed), 0.0), [arm.name]))
    return measurements, disturbed
