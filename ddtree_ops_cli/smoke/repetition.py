"""Answers that end in a loop, and whose fault that is.

Small models loop by themselves when decoded greedily, so a loop alone proves nothing. It counts
against the engine in two cases: the target, asked by fresh prefills inside the loop, would have
gone on otherwise (a state is stuck); or answers to different prompts fall into one and the same
loop (broken weights or kernels: the well-known "!!!!").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..engine_api.answers import Completion
from .fresh_prefill import BusyError, nearly_tied, next_token
from .outcome import Outcome
from .session import Session

CHECK = "repetition"

LONGEST_PERIOD = 16
LEAST_REPEATS = 4
LEAST_SHARE = 1 / 3
"""A loop is up to 16 tokens long, comes four times in a row and fills a third of the answer: lists,
tables and refrains repeat their frame, but never all of it that often."""

SAME_LOOP_SHARE = 0.75
"""Share of the answers that must end in one loop for the model itself to be broken."""

PROBES = 4
"""Places inside a loop where the target is asked."""


@dataclass(frozen=True, slots=True)
class Loop:
    start: int
    """Token from which the answer only repeats."""
    cycle: tuple[int, ...]


def check(session: Session) -> Outcome:
    answers = session.answers()
    found = [(number, find_loop(answer.token_ids)) for number, answer in enumerate(answers)]
    loops = [(number, loop) for number, loop in found if loop is not None]
    figures = {"answers": len(answers), "loops": len(loops)}
    if not all(answer.token_ids and answer.prompt_token_ids for answer in answers):
        return Outcome(CHECK, "not exercised", "the engine gives no token ids with its answers")
    if not loops:
        return Outcome(CHECK, "passed", f"{len(answers)} answers, none ends in a loop", figures)
    common, times = Counter(_canonical(loop.cycle) for _, loop in loops).most_common(1)[0]
    if times >= SAME_LOOP_SHARE * len(answers):
        return Outcome(
            CHECK,
            "failed",
            f"{times} of {len(answers)} different prompts end in the same loop of {len(common)}"
            " tokens: the weights or the kernels of this engine are broken",
            figures,
        )
    try:
        for number, loop in loops:
            place = _broken_at(session, answers[number], loop)
            if place is not None:
                return Outcome(
                    CHECK,
                    "failed",
                    f"answer {number + 1} repeats {len(loop.cycle)} tokens from token {loop.start}"
                    f" on, and at token {place} the target itself would not: a state is stuck",
                    {**figures, "position": place},
                )
    except BusyError:
        return Outcome(
            CHECK,
            "not exercised",
            f"{len(loops)} of {len(answers)} answers end in a loop, and the engine is too busy to"
            " ask its target about it: smoke it when idle",
            figures,
        )
    return Outcome(
        CHECK,
        "passed",
        f"{len(loops)} of {len(answers)} answers end in a loop, and the target itself wants it so",
        figures,
    )


def find_loop(tokens: Sequence[int]) -> Loop | None:
    """The loop in which an answer ends, with the shortest cycle that explains it."""
    for period in range(1, LONGEST_PERIOD + 1):
        same = 0
        while same + period < len(tokens) and tokens[-1 - same] == tokens[-1 - same - period]:
            same += 1
        length = same + period
        if length >= LEAST_REPEATS * period and length >= LEAST_SHARE * len(tokens) and same:
            return Loop(start=len(tokens) - length, cycle=tuple(tokens[-period:]))
    return None


def _canonical(cycle: tuple[int, ...]) -> tuple[int, ...]:
    """One form for all rotations of a cycle."""
    return min(cycle[at:] + cycle[:at] for at in range(len(cycle)))


def _broken_at(session: Session, answer: Completion, loop: Loop) -> int | None:
    """A place inside the loop where the target says something else."""
    first = loop.start + len(loop.cycle)
    last = len(answer.token_ids) - 1
    for probe in range(PROBES):
        at = first + probe * (last - first) // (PROBES - 1)
        prefix = [*answer.prompt_token_ids, *answer.token_ids[:at]]
        token = answer.token_ids[at]
        if next_token(session.engine, prefix) != token and not nearly_tied(
            session.engine, prefix, token
        ):
            return at
    return None
