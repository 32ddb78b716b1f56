"""The tree answers what the linear mode answers: greedy speculation changes speed, never text."""

from __future__ import annotations

from .comparison import first_difference
from .fresh_prefill import MOST_TIES, nearly_tied
from .outcome import Outcome
from .session import PROMPTS, Session

CHECK = "parity with linear"


def check(session: Session) -> Outcome:
    if session.linear is None:
        return Outcome(
            CHECK,
            "not exercised",
            "no linear service of the same model to compare with: deploy dflash-linear beside this"
            " one, or let smoke start it (--start-linear)",
        )
    ties = 0
    tokens = 0
    for number, ours in enumerate(session.answers()):
        theirs = session.ask(session.linear, PROMPTS[number])
        place = first_difference(ours, theirs)
        if place is None:
            tokens += ours.completion_tokens
            continue
        at = place.position
        known = ours.prompt_token_ids and at < min(len(ours.token_ids), len(theirs.token_ids))
        if known and ties < MOST_TIES:
            prefix = [*ours.prompt_token_ids, *ours.token_ids[:at]]
            if all(
                nearly_tied(session.engine, prefix, token)
                for token in (ours.token_ids[at], theirs.token_ids[at])
            ):
                ties += 1
                tokens += at
                continue
        return Outcome(
            CHECK,
            "failed",
            f"prompt {number + 1} differs from the linear answer at {place}: the tree loses or"
            " mixes up state, or the two services do not run the same model",
            {"prompt": number + 1, "position": at, "near_ties": ties},
        )
    excused = f", {ties} of them up to a near tie" if ties else ""
    return Outcome(
        CHECK,
        "passed",
        f"{len(PROMPTS)} prompts, {tokens} tokens, the same{excused}",
        {"prompts": len(PROMPTS), "tokens": tokens, "near_ties": ties},
    )
