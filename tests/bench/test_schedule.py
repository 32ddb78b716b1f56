"""The order of a run: balanced, shuffled, and the same for the same seed."""

from __future__ import annotations

from collections import Counter

from ddtree_ops_cli.bench.schedule import block_order, round_order

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


def test_in_turns_the_arms_go_a_b_b_a_so_that_a_steady_drift_cancels() -> None:
    rounds = [block_order(index, PROMPTS, ARMS, seed=7) for index in range(10)]
    arms = [block.arm for blocks in rounds for block in blocks]
    assert arms[:8] == ["tree", "linear", "linear", "tree", "tree", "linear", "linear", "tree"]
    places = {arm: [i for i, name in enumerate(arms) if name == arm] for arm in ARMS}
    assert sum(places["tree"]) == sum(places["linear"])


def test_in_turns_both_blocks_of_a_round_ask_every_prompt_in_one_shuffled_order() -> None:
    orders = set()
    for index in range(10):
        first, second = block_order(index, PROMPTS, ARMS, seed=7)
        assert first.prompts == second.prompts
        assert sorted(first.prompts) == list(PROMPTS)
        orders.add(first.prompts)
    assert len(orders) > 5
