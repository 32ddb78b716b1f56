"""The evaluator's trees: best-first, seeded with a chain, and walked by a known answer."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tools.train_lab_pair import tree
from tools.train_lab_pair.evaluate import count_steps


def candidates(rng: random.Random, depths: int, width: int) -> list[list[tuple[float, int]]]:
    """Tokens are unique over the whole tree, so that a node is known by its token."""
    result = []
    for depth in range(depths):
        chances = sorted((rng.random() for _ in range(width)), reverse=True)
        total = sum(chances) * 1.2
        result.append([(math.log(c / total), 100 * depth + r) for r, c in enumerate(chances)])
    return result


def paths(children: tree.Children, node: int = 0) -> set[tuple[int, ...]]:
    found = {()} if node == 0 else set()
    for token, child in children[node].items():
        found |= {(token, *rest) for rest in paths(children, child) | {()}}
    return found


@pytest.mark.parametrize("budget", [1, 2, 5, 9, 14])
def test_best_first_takes_the_most_likely_paths(budget: int) -> None:
    rng = random.Random(budget)
    for _ in range(20):
        depths = candidates(rng, 3, 3)
        every = [
            (sum(depths[d][r][0] for d, r in enumerate(ranks)), ranks)
            for length in (1, 2, 3)
            for ranks in itertools.product(range(3), repeat=length)
        ]
        every.sort(key=lambda item: -item[0])
        expected = {
            tuple(depths[d][r][1] for d, r in enumerate(ranks)) for _, ranks in every[:budget]
        }

        children, _ = tree.grow(depths, budget, 0)

        assert paths(children) - {()} == expected


@pytest.mark.parametrize("seed", [1, 4, 15])
def test_a_seeded_tree_keeps_the_chain_and_spends_the_rest(seed: int) -> None:
    depths = candidates(random.Random(seed), 15, 8)
    children, spine = tree.grow(depths, 16, seed)

    chain = tuple(depths[d][0][1] for d in range(seed))
    assert chain in paths(children)
    assert len(children) == len(spine) == 17


def test_the_whole_budget_on_the_chain_is_linear_speculation() -> None:
    depths = candidates(random.Random(0), 15, 8)
    children, spine = tree.grow(depths, 15, 15)

    assert all(spine)
    assert paths(children) == {tuple(depths[d][0][1] for d in range(n)) for n in range(16)}


def test_a_walk_counts_what_is_off_the_spine() -> None:
    depths = [[(-0.1, 1), (-2.0, 2)], [(-0.1, 11), (-2.0, 12)]]
    children, spine = tree.grow(depths, 6, 0)

    assert tree.walk(children, spine, [1, 11, 5]) == (2, 0)
    assert tree.walk(children, spine, [1, 12]) == (2, 1)
    assert tree.walk(children, spine, [2, 11]) == (2, 2)
    assert tree.walk(children, spine, [3]) == (0, 0)


def test_steps_are_counted_from_root_to_root_until_the_answer_ends() -> None:
    """Ten tokens, a drafter that knows the next two: prefill 1, then 3 a step."""
    said = list(range(10))
    drafts = [[[(-0.1, place + 1)], [(-0.1, place + 2)], [(-0.1, 99)]] for place in said]

    count = count_steps(said, drafts, 3, 3)

    assert (count.steps, count.accepted, count.tokens) == (3, 6, 10)
    assert count.accept_length == 3.0
