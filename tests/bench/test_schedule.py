"""The order of a run: balanced, shuffled, and the same for the same seed."""

from __future__ import annotations

from collections import Counter

from ddtree_ops_cli.bench.schedule import round_order

ARMS = ("tree", "linear")
PROMPTS = ("a", "b", "c", "d", "e")


def test_every_prompt_runs_on_both_arms_in_every_round() -> None:
    for index in range(20):
        pairs = round_order(index, PROMPTS, ARMS, seed=7)
        assert sorted(pair.prompt for pair in pairs) == list(PROMPTS)
        assert all(sorted(pair.arms) == sorted(ARMS) for pair in pairs)


def test_each_arm_goes_first_equally_often_for_every_prompt_over_two_rounds() -> None:
    for index in range(0, 20, 2):
        first = Counter(
            (pair.prompt, pair.arms[0])
            for turn in (index, index + 1)
            for pair in round_order(turn, PROMPTS, ARMS, seed=7)
        )
        assert set(first.values()) == {1}
        assert len(first) == 2 * len(PROMPTS)


def test_inside_a_round_neither_arm_always_goes_first() -> None:
    first = Counter(pair.arms[0] for pair in round_order(0, PROMPTS, ARMS, seed=7))
    assert sorted(first.values()) == [2, 3]


def test_the_seed_decides_the_order_of_the_prompts() -> None:
    def orders(seed: int) -> list[list[str]]:
        return [
            [pair.prompt for pair in round_order(index, PROMPTS, ARMS, seed=seed)]
            for index in range(10)
        ]

    assert orders(1) == orders(1)
    assert orders(1) != orders(2)
    assert len({tuple(order) for order in orders(1)}) > 5
