"""At temperature 1 each token is drawn from the target's own distribution, tree or no tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chisquare

from tests.sglang_gpu.answers import Server
from tests.sglang_gpu.fleet import on
from tests.sglang_gpu.judge import logits_after
from tests.sglang_gpu.questions import suite

Serve = Callable[[str], Server]
Note = Callable[..., None]

DRAWS = 1600
NAMES = ["linear-bf16", "tree-8-bf16", "tree-16-bf16", "tree-64-bf16", "tree-16-f32"]
NAMES += ["tree-16-bf16-tp2", "tree-16-bf16-no-overlap", "tree-16-bf16-as-shipped"]
PROMPT = 12
"""Of the suite: behind its first token the target is of several minds, and behind its second."""


def draws(server: Server, tokens: int, **sampling: object) -> list[tuple[int, ...]]:
    drawn: list[tuple[int, ...]] = []
    while len(drawn) < DRAWS:
        answers = server.draws(suite()[PROMPT], tokens, 80, ignore_eos=True, **sampling)
        drawn += [tuple(answer) for answer in answers]
    return drawn


def p_value(seen: Counter[int], probabilities: np.ndarray) -> float:
    """Of the counts under the distribution; tokens expected fewer than 8 times count as one."""
    total = sum(seen.values())
    common = np.flatnonzero(probabilities * total >= 8)
    observed = [seen[int(token)] for token in common]
    expected = [float(probabilities[token]) * total for token in common]
    rest = total - sum(expected)
    if rest > 1e-6:
        observed.append(total - sum(observed))
        expected.append(rest)
    return float(chisquare(observed, np.array(expected) * (total / sum(expected))).pvalue)


def distribution(tokens: list[int], temperature: float, top_k: int | None = None) -> np.ndarray:
    logits = logits_after(tokens).astype(np.float64) / temperature
    if top_k is not None:
        logits[np.argsort(-logits, kind="stable")[top_k:]] = -np.inf
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("name", on(*NAMES))
def test_drawn_tokens_follow_the_targets_distribution(
    name: str, top_k: int | None, server: Serve, note: Note
) -> None:
    """The tokens behind the prefill's: each is conditioned on what was drawn before it."""
    temperature = 1.5
    more = {} if top_k is None else {"top_k": top_k}
    drawn = draws(server(name), 4, temperature=temperature, **more)
    p_values = []
    for length in (0, 1, 2, 3):
        for before, count in Counter(row[:length] for row in drawn).most_common(3):
            if count < 200:
                continue
            seen = Counter(row[length] for row in drawn if row[:length] == before)
            expected = distribution([*suite()[PROMPT], *before], temperature, top_k)
            if expected.max() < 0.97:
                p_values.append((length, count, p_value(seen, expected)))
    note(server=name, top_k=top_k, p_values=p_values)
    assert any(length > 0 for length, _, _ in p_values), "the prompt must leave a choice"
    worst = min(value for _, _, value in p_values)
    assert worst * len(p_values) > 1e-3, p_values
