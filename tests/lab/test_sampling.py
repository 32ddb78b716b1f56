"""Sampling is lossless: speculation draws from the target's own distribution."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from ddtree_ops_cli.errors import UsageError
from ddtree_ops_cli.lab.decode import Engine, Sampling, Speculation
from ddtree_ops_cli.lab.sampling import distribution
from tests.lab.random_pair import write_random_pair

LINEAR = Speculation("DFLASH")
TREE = Speculation("DDTREE", budget=12)
PROMPT = [33, 7, 7, 100]
DRAWS = 300

Text = tuple[int, ...]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_random_pair(tmp_path_factory.mktemp("pair"))


def exact(engine: Engine, sampling: Sampling) -> dict[Text, float]:
    """The probability of every text of max_new_tokens after PROMPT, by plain prefills."""
    texts: dict[Text, float] = {(): 1.0}
    for _ in range(sampling.max_new_tokens):
        longer: dict[Text, float] = {}
        for text, probability in texts.items():
            state = engine.target.initial_state()
            logits, _ = engine.target.prefill(state, np.array([*PROMPT, *text]))
            following = distribution(logits, sampling)
            for token in np.flatnonzero(following).tolist():
                longer[*text, token] = probability * following[token]
        texts = longer
    return texts


def p_value(counts: Counter[Text], expected: dict[Text, float]) -> float:
    """Chi-square of the counts; texts expected less than five times share one bin."""
    draws = counts.total()
    likely = [text for text, probability in expected.items() if probability * draws >= 5]
    observed_bins = [counts[text] for text in likely]
    expected_bins = [expected[text] * draws for text in likely]
    observed_bins.append(draws - sum(observed_bins))
    expected_bins.append(draws - sum(expected_bins))
    return float(chisquare(observed_bins, expected_bins).pvalue)


def drawn(engine: Engine, sampling: Sampling) -> tuple[Counter[Text], int]:
    """What DRAWS seeds give, and how many drafts they accepted."""
    counts: Counter[Text] = Counter()
    accepted = 0
    for seed in range(DRAWS):
        steps = list(engine.generate(PROMPT, replace(sampling, seed=seed)))
        counts[tuple(token for step in steps for token in step.tokens)] += 1
        accepted += sum(step.accepted for step in steps)
    return counts, accepted


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(2, temperature=0.8, ignore_eos=True),
        # Three tokens: the third often comes from an accepted node and not from the root.
        Sampling(3, temperature=1.5, top_k=4, top_p=0.9, ignore_eos=True),
    ],
    ids=["two tokens, whole vocabulary", "three tokens, top-k and top-p"],
)
@pytest.mark.parametrize("speculation", [LINEAR, TREE], ids=["linear", "tree"])
def test_the_first_tokens_are_distributed_as_the_target_says(
    pair: tuple[Path, Path], speculation: Speculation, sampling: Sampling
) -> None:
    engine = Engine.load(*pair, speculation)
    counts, accepted = drawn(engine, sampling)
    expected = exact(engine, sampling)
    assert set(counts) <= set(expected)
    assert accepted > DRAWS / 10
    assert p_value(counts, expected) > 1e-3


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"temperature": 1.3}])
def test_the_chi_square_sees_another_distribution(
    pair: tuple[Path, Path], wrong: dict[str, Any]
) -> None:
    engine = Engine.load(*pair, TREE)
    sampling = Sampling(2, temperature=0.8, ignore_eos=True)
    counts, _ = drawn(engine, replace(sampling, **wrong))
    assert p_value(counts, exact(engine, sampling)) < 1e-3


def test_a_seed_gives_the_same_text_however_it_is_drafted(pair: tuple[Path, Path]) -> None:
    engines = [Engine.load(*pair, speculation) for speculation in (Speculation(), LINEAR, TREE)]
    for seed in range(5):
        sampling = Sampling(60, temperature=0.9, seed=seed, ignore_eos=True)
        texts = {
            tuple(token for step in engine.generate(PROMPT, sampling) for token in step.tokens)
            for engine in engines
        }
        assert len(texts) == 1


def test_without_a_seed_texts_differ(pair: tuple[Path, Path]) -> None:
    engine = Engine.load(*pair, Speculation())
    sampling = Sampling(30, temperature=2.0, ignore_eos=True)
    assert list(engine.generate(PROMPT, sampling)) != list(engine.generate(PROMPT, sampling))


LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0.1, 0.4, 0.2, 0.3]),
        ({"temperature": 0.5}, [1 / 30, 16 / 30, 4 / 30, 9 / 30]),
        ({"top_k": 2}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_k": 99}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_p": 0.4}, [0, 1, 0, 0]),
        ({"top_p": 0.6}, [0, 4 / 7, 0, 3 / 7]),
        # Within the top three 0.4 and 0.3 are 0.78 of the mass: enough, top-k goes first.
        ({"top_k": 3, "top_p": 0.75}, [0, 4 / 7, 0, 3 / 7]),
    ],
)
def test_temperature_top_k_and_top_p(settings: dict[str, Any], expected: list[float]) -> None:
    sampling = Sampling(1, **{"temperature": 1.0, **settings})
    assert np.allclose(distribution(LOGITS, sampling), expected, atol=1e-6)


def test_equal_logits_rank_by_token_id() -> None:
    found = distribution(np.zeros(4, np.float32), Sampling(1, temperature=1.0, top_k=2))
    assert found.tolist() == [0.5, 0.5, 0, 0]


@pytest.mark.parametrize("settings", [{}, {"temperature": 1e-7}, {"temperature": 5.0, "top_k": 1}])
def test_greedy_takes_the_lowest_of_the_best(settings: dict[str, Any]) -> None:
    choose = Sampling(1, **settings).chooser()
    assert choose(np.array([0, 2, 1, 2], np.float32)) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_new_tokens": -1}, "max_new_tokens must be at least 0, got -1"),
        ({"temperature": -0.1}, "temperature must be a finite number of at least 0, got -0.1"),
        ({"temperature": float("nan")}, "temperature must be a finite number"),
        ({"temperature": float("inf")}, "temperature must be a finite number"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1, got 1.1"),
        ({"top_k": 0}, r"top_k must be -1 \(off\) or at least 1, got 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Sampling(**{"max_new_tokens": 1, **settings})


def test_a_draw_at_the_very_end_is_still_a_token_with_probability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 0.1 summed ten times stays below 1: a draw above that sum must not fall off the vocabulary.
    logits = np.concatenate([np.zeros(10), np.full(5, -1e9)]).astype(np.float32)

    class AlmostOne:
        def random(self) -> float:
            return 1 - 2**-53

    monkeypatch.setattr(np.random, "default_rng", lambda seed: AlmostOne())
    assert Sampling(max_new_tokens=1, temperature=1.0).chooser()(logits) == 9
