"""Each token of a long answer is what the target itself says after the tokens before it.

This needs no second service: the tokens that came out of drafting, verifying and committing are
derived again by fresh prefills, which do none of these. Wrong recurrent or convolution states, keys
and values at wrong places and commits that are one node off all end in a token that differs.
"""

from __future__ import annotations

from ..engine_api.answers import Completion
from .fresh_prefill import MOST_TIES, BusyError, nearly_tied, next_token
from .outcome import Outcome
from .session import PROMPTS, Session

CHECK = "re-derivation"
LEAST_TOKENS = 48


def check(session: Session) -> Outcome:
    answer = _long_answer(session)
    tokens = answer.token_ids
    if not answer.prompt_token_ids or len(tokens) < LEAST_TOKENS:
        return Outcome(
            CHECK,
            "not exercised",
            f"the engine gave {len(tokens)} token ids of its answer and"
            f" {len(answer.prompt_token_ids)} of the prompt: it takes {LEAST_TOKENS} and all of the"
            " prompt, as SGLang 0.5.17 gives them for return_token_ids",
        )
    ties: list[int] = []
    wrong: list[tuple[int, int]] = []
    places = positions(len(tokens), session.positions)
    try:
        for at in places:
            prefix = [*answer.prompt_token_ids, *tokens[:at]]
            said = next_token(session.engine, prefix)
            if said == tokens[at]:
                continue
            if len(ties) < MOST_TIES and nearly_tied(session.engine, prefix, tokens[at]):
                ties.append(at)
            else:
                wrong.append((at, said))
    except BusyError:
        return Outcome(
            CHECK,
            "not exercised",
            "the engine serves other requests, so its cache cannot be flushed: smoke it when idle",
        )
    figures = {"positions": len(places), "mismatches": len(wrong), "near_ties": len(ties)}
    if wrong:
        at, said = wrong[0]
        return Outcome(
            CHECK,
            "failed",
            f"{len(wrong)} of {len(places)} positions; the first is token {at} of the answer:"
            f" decoding gave {tokens[at]}, a fresh prefill gives {said}: the state that decoding"
            " carries is not that of the text",
            {**figures, "position": at},
        )
    excused = f", {len(ties)} of them near ties ({', '.join(map(str, ties))})" if ties else ""
    return Outcome(
        CHECK,
        "passed",
        f"{len(places)} positions of an answer of {len(tokens)} tokens{excused}",
        figures,
    )


def positions(length: int, most: int) -> list[int]:
    """Places in an answer, the first and the last token among them, evenly between."""
    count = min(most, length)
    return sorted({round(number * (length - 1) / (count - 1)) for number in range(count)})


def _long_answer(session: Session) -> Completion:
    longest = max(session.answers(), key=lambda answer: len(answer.token_ids))
    if 0 < len(longest.token_ids) < LEAST_TOKENS:
        return session.ask(session.engine, PROMPTS[0], to_the_end=True)
    return longest
