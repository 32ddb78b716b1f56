"""The best-first tree against an exhaustive search, and the walk along it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ddtree_ops_cli.lab.arrays import Floats
from ddtree_ops_cli.lab.tree import (
    Candidates,
    DraftTree,
    accepted_at_least,
    best_first_tree,
    chain_tree,
    root_only,
    top_candidates,
    walk,
)

ROOT = 1000
Ranks = tuple[int, ...]


def candidates(log_probs: Floats) -> Candidates:
    """Candidates whose token ids tell depth and rank: 10 * depth + rank."""
    depths, cap = log_probs.shape
    tokens = 10 * (1 + np.arange(depths))[:, None] + np.arange(cap)
    return Candidates(tokens, log_probs)


def random_log_probs(random: np.random.Generator, *, ties: bool) -> Floats:
    """[depth, rank], descending by rank; with ties, from a handful of values."""
    shape = (int(random.integers(1, 5)), int(random.integers(1, 5)))
    values = random.integers(-3, 0, shape) / 2 if ties else -random.exponential(1.0, shape)
    return -np.sort(-values.astype(np.float32), axis=1)


def ranks_of(tree: DraftTree) -> list[Ranks]:
    """Each node but the root as the ranks on its path, read back from its token ids."""
    paths: list[Ranks] = [()]
    for parent, token in zip(tree.ancestry.parents[1:], tree.tokens[1:], strict=True):
        path = paths[parent]
        assert token // 10 == len(path) + 1
        paths.append((*path, int(token % 10)))
    return paths[1:]


def exhaustive(log_probs: Floats, budget: int, seed: int) -> list[Ranks]:
    """The spine to the seed, then the best of all other nodes in the documented order."""
    depths, cap = log_probs.shape
    spine = [(0,) * depth for depth in range(1, min(seed, depths, budget) + 1)]
    every = [path for d in range(1, depths + 1) for path in product(range(cap), repeat=d)]

    def key(path: Ranks) -> tuple[float, int, Ranks]:
        score = 0.0
        for depth, rank in enumerate(path):
            score += float(log_probs[depth, rank])
        return -score, len(path), path

    others = sorted((path for path in every if path not in spine), key=key)
    return spine + others[: budget - len(spine)]


@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
def test_the_tree_is_what_an_exhaustive_search_finds(ties: bool) -> None:
    random = np.random.default_rng(11)
    for _ in range(400):
        log_probs = random_log_probs(random, ties=ties)
        budget, seed = int(random.integers(1, 40)), int(random.integers(0, 6))
        tree = best_first_tree(ROOT, candidates(log_probs), budget, seed)
        assert ranks_of(tree) == exhaustive(log_probs, budget, seed)


def test_a_worse_order_of_ties_would_be_seen() -> None:
    log_probs = np.full((2, 2), -1, np.float32)
    found = ranks_of(best_first_tree(ROOT, candidates(log_probs), 6))
    # Equal scores: (0) before (1); below them four nodes of equal score, in dictionary order.
    assert found == [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("budget", [1, 14, 15, 16, 17, 64])
@pytest.mark.parametrize("seed", [0, 1, 8, 15, 99])
def test_the_spine_is_kept_to_the_seed_whatever_it_scores(budget: int, seed: int) -> None:
    log_probs = np.tile(np.array([-3, -3.1, -3.2], np.float32), (15, 1))
    tree = best_first_tree(ROOT, candidates(log_probs), budget, seed)
    assert tree.proposed == budget
    kept = min(seed, 15, budget)
    assert ranks_of(tree)[:kept] == [(0,) * depth for depth in range(1, kept + 1)]
    assert tree.spine >= set(range(kept + 1))
    on_spine = [0, *(i for i, ranks in enumerate(ranks_of(tree), 1) if not any(ranks))]
    assert sorted(tree.spine) == on_spine


def test_a_budget_beyond_the_candidates_takes_them_all() -> None:
    log_probs = np.log(np.array([[0.7, 0.2], [0.6, 0.3]], np.float32))
    for seed in (0, 2, 9):
        tree = best_first_tree(ROOT, candidates(log_probs), 100, seed)
        assert sorted(ranks_of(tree)) == sorted([(0,), (1,), *product(range(2), repeat=2)])


@pytest.mark.parametrize("seed", [0, 3])
def test_parents_precede_children_and_siblings_ascend(seed: int) -> None:
    random = np.random.default_rng(3)
    for _ in range(50):
        log_probs = random_log_probs(random, ties=True)
        tree = best_first_tree(ROOT, candidates(log_probs), 30, seed)
        parents = tree.ancestry.parents
        assert parents[0] == -1
        assert (parents < np.arange(len(parents))).all()
        for parent in set(parents.tolist()):
            siblings = tree.tokens[parents == parent]
            assert (np.diff(siblings) == 1).all()
        assert (tree.ancestry.depths[1:] == tree.tokens[1:] // 10).all()


def test_candidates_are_the_most_probable_tokens_and_ties_go_to_the_lower_id() -> None:
    logits = np.array([[0, 5, 5, 2, 5, 2], [1, 1, 1, 1, 1, 1]], np.float32)
    found = top_candidates(logits, 4)
    assert found.tokens.tolist() == [[1, 2, 4, 3], [0, 1, 2, 3]]
    log_sum = np.log(np.exp(logits).sum(axis=1))
    expected = np.take_along_axis(logits, found.tokens, axis=1) - log_sum[:, None]
    assert np.allclose(found.log_probs, expected)
    assert found.log_probs.dtype == np.float32


def test_candidates_of_large_rows_equal_a_full_sort() -> None:
    random = np.random.default_rng(4)
    logits = np.round(random.standard_normal((15, 500)), 1).astype(np.float32)
    found = top_candidates(logits, 8)
    for row, tokens in zip(logits, found.tokens, strict=True):
        assert tokens.tolist() == sorted(range(500), key=lambda token: (-row[token], token))[:8]
    assert (found.log_probs <= 0).all()


def test_a_cap_beyond_the_vocabulary_takes_the_vocabulary() -> None:
    assert top_candidates(np.zeros((2, 3), np.float32), 9).tokens.tolist() == [[0, 1, 2]] * 2


def greedy(logits: Floats) -> int:
    return int(logits.argmax())


def wants(*tokens: int) -> Floats:
    """Logits of one node after another, each wanting one token."""
    logits = np.zeros((len(tokens), 50), np.float32)
    logits[np.arange(len(tokens)), tokens] = 1
    return logits


def test_the_walk_takes_a_sibling_and_returns_the_first_unmatched_choice() -> None:
    # Root 0; children 10 and 11; below each 20 and 21. Array order: 10, 11, 20, 20, 21.
    log_probs = np.log(np.array([[0.5, 0.45], [0.6, 0.3]], np.float32))
    tree = best_first_tree(0, candidates(log_probs), 5)
    assert ranks_of(tree) == [(0,), (1,), (0, 0), (1, 0), (0, 1)]
    path, bonus = walk(tree, wants(11, 5, 20, 6, 7, 8), greedy)
    assert (path.tolist(), bonus) == ([0, 2, 4], 7)
    path, bonus = walk(tree, wants(12, 5, 20, 6, 7, 8), greedy)
    assert (path.tolist(), bonus) == ([0], 12)
    # 21 is wanted below 11, but stands below 10 only.
    path, bonus = walk(tree, wants(11, 5, 21, 6, 7, 8), greedy)
    assert (path.tolist(), bonus) == ([0, 2], 21)


def test_the_walk_of_a_chain_is_its_accepted_prefix() -> None:
    tree = chain_tree(7, np.array([1, 2, 3]))
    assert tree.spine == {0, 1, 2, 3}
    for accepted in range(4):
        wanted = [1, 2, 3, 4]
        wanted[accepted] = 40
        path, bonus = walk(tree, wants(*wanted), greedy)
        assert (path.tolist(), bonus) == (list(range(accepted + 1)), 40)


@pytest.mark.parametrize(
    ("accepted", "bonus", "least"),
    [
        (0, 99, 0),  # no such branch
        (0, 11, 1),  # a branch of the root
        (1, 21, 2),
        (1, 11, 1),  # a branch, but of another node
        (2, 21, 2),  # the spine's end: nothing is below
        (3, 21, 2),  # the chain goes on where the tree's spine has ended
    ],
)
def test_a_pass_over_the_chain_tells_what_the_tree_would_have_accepted_at_least(
    accepted: int, bonus: int, least: int
) -> None:
    # Root 0; children 10 and 11; below each 20, and 21 below 10. The spine: 0, 10, 20.
    log_probs = np.log(np.array([[0.5, 0.45], [0.6, 0.3]], np.float32))
    tree = best_first_tree(0, candidates(log_probs), 5)
    assert accepted_at_least(tree, accepted, bonus) == least


def test_a_root_alone_is_accepted_with_its_next_token() -> None:
    path, bonus = walk(root_only(7), wants(9), greedy)
    assert (path.tolist(), bonus) == ([0], 9)
