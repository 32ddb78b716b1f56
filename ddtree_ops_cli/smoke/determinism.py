"""The same greedy prompt has the same answer twice, token for token."""

from __future__ import annotations

from .comparison import first_difference
from .outcome import Outcome
from .session import Session

CHECK = "determinism"
REPEATED = 3
"""Prompts that are asked a second time."""


def check(session: Session) -> Outcome:
    tokens = 0
    repeated = session.answers()[:REPEATED]
    for number, first in enumerate(repeated):
        again = session.ask(session.engine, session.prompts[number])
        place = first_difference(first, again)
        if place is not None:
            return Outcome(
                CHECK,
                "failed",
                f"prompt {number + 1} was answered differently the second time, from {place} on:"
                " the engine reads state that it should not, or a kernel does not repeat itself",
                {"prompt": number + 1, "position": place.position},
            )
        tokens += again.completion_tokens
    found = f"{len(repeated)} prompts, {tokens} tokens, twice the same"
    return Outcome(CHECK, "passed", found, {"tokens": tokens})
