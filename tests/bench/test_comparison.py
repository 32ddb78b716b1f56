"""What is compared, and what is left out of the comparison."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest

from ddtree_ops_cli.bench.answer import Shape
from ddtree_ops_cli.bench.comparison import compare, first_difference
from ddtree_ops_cli.bench.measurement import Measurement, Round, Timing, Twin
from ddtree_ops_cli.bench.prompts import Prompt
from ddtree_ops_cli.bench.run import Run, Settings, WarmUp
from ddtree_ops_cli.bench.verdict import cautions, verdict
from ddtree_ops_cli.engine_api.acceptance import Acceptance

ARMS = ("tree", "linear")


def measurement(arm: str, prompt: str, rate: float | None, *, position: int = 0) -> Measurement:
    tokens = 2 if rate is None else 101
    return Measurement(
        arm=arm,
        prompt=prompt,
        position=position,
        started_at=0.0,
        timing=Timing(
            ttft_s=0.1,
            first_tokens=2 if rate is None else 1,
            decode_s=0.0 if rate is None else 100 / rate,
            tokens=tokens,
            prompt_tokens=9,
            finish_reason="stop",
            text="same",
        ),
        verify_steps=25,
        off_spine=0,
        cached_tokens=0,
    )


def rounds(rates: dict[str, tuple[float | None, float | None]], count: int = 10) -> list[Round]:
    """`count` rounds of these rates (tree, linear), which swing by 1 % from round to round."""
    found = []
    for index in range(count):
        swing = 1 + 0.01 * (-1) ** (index // 2)
        measurements = []
        for prompt, (tree, linear) in rates.items():
            order = index % 2
            measurements += [
                measurement("tree", prompt, tree and tree * swing, position=order),
                measurement("linear", prompt, linear, position=1 - order),
            ]
        found.append(Round(index, tuple(measurements), (), 0.0))
    return found


def twins(*prompts: str, verify_steps: int = 25) -> list[Twin]:
    acceptance = Acceptance(verify_steps, 3 * verify_steps, 15 * verify_steps, 5)
    return [
        Twin(arm, prompt, (1, 2, 3), 9, 101, acceptance, "same")
        for arm in ARMS
        for prompt in prompts
    ]


def run_of(done: list[Round], *prompts: str) -> Run:
    run = Run(tuple(Prompt(name, name) for name in prompts), Settings(10, 0, Shape(128, 0.0)), ARMS)
    run.rounds = done
    run.status = "complete"
    run.warm_ups = [WarmUp(arm, [100.0] * 3) for arm in ARMS]
    return run


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        (112.0, r"the tree is 1[12]\.\d % faster than linear \(95 %: 11\.\d to 1[23]\.\d %\)$"),
        (
            90.0,
            r"the tree does not pay here: it is \d+\.\d % slower than linear \(95 %: 9\.\d to 10",
        ),
        (
            100.0,
            r"no difference shown: the tree is at [+-]0\.\d % against linear \(95 %: -\d\.\d to \+",
        ),
    ],
)
def test_the_verdict_says_in_words_what_the_interval_says(tree: float, says: str) -> None:
    found = compare(ARMS, ["a"], rounds({"a": (tree, 100.0)}), twins("a"), greedy=True)
    assert re.match(says, verdict(found)), verdict(found)


def test_fewer_than_10_rounds_give_no_verdict_however_large_the_difference() -> None:
    done = rounds({"a": (200.0, 100.0)}, count=9)
    found = compare(ARMS, ["a"], done, twins("a"), greedy=True)
    assert found.verdict == "too few rounds"
    assert verdict(found).startswith("no verdict: 9 rounds count, and it takes 10; so far the tree")


def test_the_overall_ratio_is_the_mean_of_the_logs_over_the_prompts() -> None:
    rates: dict[str, tuple[float | None, float | None]] = {"a": (121.0, 100.0), "b": (50.0, 50.0)}
    found = compare(ARMS, ["a", "b"], rounds(rates), twins("a", "b"), greedy=True)
    assert found.overall.ratio is not None
    assert found.overall.ratio.estimate == pytest.approx(1.1, rel=0.003)
    linear = found.overall.arms["linear"]
    assert linear.decode_tok_s == pytest.approx(math.sqrt(100 * 50))


def test_a_prompt_too_short_for_a_rate_is_named_and_left_out_of_the_overall_ratio() -> None:
    rates: dict[str, tuple[float | None, float | None]] = {"a": (110.0, 100.0), "b": (None, 100.0)}
    done = rounds(rates)
    found = compare(ARMS, ["a", "b"], done, twins("a", "b"), greedy=True)
    alone = compare(ARMS, ["a"], rounds({"a": rates["a"]}), twins("a"), greedy=True)
    assert found.left_out == ("b",)
    assert found.prompts[1].ratio is None
    assert found.overall.ratio == alone.overall.ratio
    assert any("too short for a rate: b" in line for line in cautions(found, run_of(done, "a")))


def test_without_any_rate_there_is_no_verdict() -> None:
    found = compare(ARMS, ["a"], rounds({"a": (None, 100.0)}), twins("a"), greedy=True)
    assert found.verdict == "no decode rate"
    assert found.overall.ratio is None
    assert verdict(found).startswith("no verdict: no prompt has a decode rate")


def test_acceptance_is_that_of_the_twins_and_checked_against_the_counters() -> None:
    done = rounds({"a": (110.0, 100.0)})
    found = compare(ARMS, ["a"], done, twins("a"), greedy=True)
    assert found.repeats == 1
    assert found.overall.arms["tree"].accept_length == pytest.approx(4)
    assert found.overall.arms["tree"].off_spine_share == pytest.approx(5 / 75)
    assert cautions(found, run_of(done, "a")) == []
    others = compare(ARMS, ["a"], done, twins("a", verify_steps=24), greedy=True)
    assert others.repeats == 0
    assert any("other verify steps" in line for line in cautions(others, run_of(done, "a")))


def test_milliseconds_per_step_ignore_how_many_steps_hide_in_the_first_chunk() -> None:
    whole = measurement("tree", "a", 100.0)
    assert whole.step_ms == pytest.approx(40)
    late = dataclasses.replace(whole.timing, first_tokens=41, decode_s=0.6)
    hidden = dataclasses.replace(whole, timing=late)
    assert hidden.step_ms == pytest.approx(40)


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [("abc", "abc", None), ("abc", "abd", 2), ("abc", "ab", 2), ("", "a", 0), ((1, 2), (1, 3), 1)],
)
def test_the_first_difference(one: str, other: str, place: int | None) -> None:
    assert first_difference(one, other) == place
