"""The drafter is alive: its tokens are accepted now and then.

A drafter that is fed wrong features, or whose tokens are mapped wrongly, changes no text: every
draft is refused, and the service is only slower (sglang issue 39087). Nothing else shows it.
"""

from __future__ import annotations

from .outcome import Outcome
from .session import Session

CHECK = "acceptance floor"

FLOOR = 1.05
"""Tokens per verify step, the bonus token included. 1 is a drafter that is never right; working
pairs stand far above, 1.5 at the least."""

LEAST_STEPS = 16
"""Verify steps that say something."""


def check(session: Session) -> Outcome:
    if session.algorithm is None:
        return Outcome(CHECK, "not exercised", "the service decodes plainly: there is no drafter")
    found = session.acceptance()
    if found is None:
        return Outcome(
            CHECK,
            "failed",
            f"the service says that it runs {session.algorithm}, but no answer reports a verify"
            " step: nothing is drafted",
        )
    length = round(found.accept_length, 3)
    figures = {
        "accept_length": length,
        "verify_steps": found.verify_steps,
        "correct_drafts": found.correct_drafts,
    }
    if found.verify_steps < LEAST_STEPS:
        return Outcome(
            CHECK,
            "not exercised",
            f"only {found.verify_steps} verify steps: the answers are too short to judge",
            figures,
        )
    if length < FLOOR:
        return Outcome(
            CHECK,
            "failed",
            f"accept length {length:.2f} over {found.verify_steps} verify steps: the drafter is"
            " dead or made for another target, and every step pays for it",
            figures,
        )
    return Outcome(
        CHECK, "passed", f"accept length {length:.2f} over {found.verify_steps} steps", figures
    )
