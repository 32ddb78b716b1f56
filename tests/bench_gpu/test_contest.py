"""What is computed from measured rounds."""

from __future__ import annotations

import math

import pytest

from ddtree_ops_cli.bench.measurement import Measurement, Round, Timing, Twin
from ddtree_ops_cli.bench.prompts import Prompt
from ddtree_ops_cli.bench.run import Run
from ddtree_ops_cli.bench.schedule import round_order
from ddtree_ops_cli.engine_api.acceptance import Acceptance
from ddtree_ops_cli.errors import DdtreeError
from tools.bench_gpu.contest import ARMS, Load, compared, joined, step_ratio, verify_off_spine

PROMPTS = (Prompt("a", "one"), Prompt("b", "two"))
LOAD = Load(PROMPTS, rounds=4, max_tokens=61, ignore_eos=True)
STEPS = 10


def measured(step_s: dict[str, float], *, first_gains: float = 0.0, rounds: int = 4) -> Run:
    """Answers of 61 tokens in ten steps; who goes first in a pair is faster by `first_gains`."""
    run = Run(PROMPTS, LOAD.settings, ARMS, status="complete")
    run.twins = [
        Twin(arm, prompt.id, (), 8, 61, Acceptance(STEPS, 50, 150, 20), "")
        for arm in ARMS
        for prompt in PROMPTS
    ]
    for index in range(rounds):
        done = []
        for pair in round_order(index, ["a", "b"], ARMS, seed=0):
            for position, arm in enumerate(pair.arms):
                step = step_s[arm] * (1 - first_gains * (position == 0))
                timing = Timing(0.05, 1, STEPS * step, 61, 8, "length", "")
                done.append(Measurement(arm, pair.prompt, position, 0.0, timing, STEPS, 20, 0))
        run.rounds.append(Round(index, tuple(done), (), 0.5))
    return run


def test_the_ratio_of_steps_is_that_of_the_decode_times() -> None:
    ratio = step_ratio(measured({"tree": 0.028, "linear": 0.024}))
    assert ratio is not None
    assert ratio.estimate == pytest.approx(28 / 24)


def test_an_advantage_of_the_first_place_cancels() -> None:
    ratio = step_ratio(measured({"tree": 0.028, "linear": 0.024}, first_gains=0.05))
    assert ratio is not None
    assert ratio.estimate == pytest.approx(28 / 24, rel=1e-9)


def test_with_equal_acceptance_rates_are_the_inverse_of_steps() -> None:
    run = measured({"tree": 0.030, "linear": 0.024})
    comparison, steps = compared(run), step_ratio(run)
    assert comparison is not None
    assert comparison.overall.ratio is not None
    assert steps is not None
    assert math.isclose(comparison.overall.ratio.estimate * steps.estimate, 1)


def test_a_round_without_all_its_steps_is_left_out() -> None:
    run = measured({"tree": 0.028, "linear": 0.024}, rounds=2)
    (first, *others), second = run.rounds[0].measurements, run.rounds[1]
    unknown = Measurement(first.arm, first.prompt, 0, 0.0, first.timing, None, None, None)
    run.rounds = [Round(0, (unknown, *others), (), 0.5), second]
    ratio = step_ratio(run)
    assert ratio is not None
    assert ratio.rounds == 1


def test_both_halves_are_one_run_with_rounds_that_count_on() -> None:
    both = joined(
        measured({"tree": 0.02, "linear": 0.01}), measured({"tree": 0.01, "linear": 0.02})
    )
    assert [done.index for done in both.rounds] == list(range(8))
    ratio = step_ratio(both)
    assert ratio is not None
    assert ratio.estimate == pytest.approx(1.0), "a GPU that is faster for whoever runs on it"


def test_drafts_that_stayed_on_the_spine_are_found() -> None:
    run = measured({"tree": 0.02, "linear": 0.01})
    verify_off_spine(run, "tree-16")
    run.twins[0] = Twin("tree", "a", (), 8, 61, Acceptance(STEPS, 50, 150, 0), "")
    with pytest.raises(DdtreeError, match=r"tree-16: .* on the spine"):
        verify_off_spine(run, "tree-16")
