"""The tree kernels against the lab engine's `best_first_tree`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from sglang.srt.speculative.ddtree.arguments import (
    DEFAULT_BUDGET,
    DEFAULT_CAP,
    MAX_BUDGET,
    default_chain_seed,
)
from sglang.srt.speculative.ddtree.tree import DraftTree, TreeShape, build_tree, fill_tree_mask

from ddtree_ops_cli.lab import decode
from ddtree_ops_cli.lab.tree import Candidates, best_first_tree
from ddtree_ops_cli.lab.tree import DraftTree as LabTree
from tests.sglang_cpu.device import DEVICE

UNTOUCHED = 7
PREFIXES = torch.tensor([5, 19, 2])
ROOTS = torch.tensor([300, 301, 302])
POOL = torch.tensor([2, 0, 3])
# Slot numbers tell which row and which position they were read from.
REQ_TO_TOKEN = (1000 * torch.arange(4)[:, None] + torch.arange(400)).to(torch.int32)


def candidates(
    shape: TreeShape, *, batch: int = 3, ties: bool = False, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Descending log-probabilities and distinct tokens, [batch * depth, cap]."""
    random = np.random.default_rng(seed)
    rows = batch * shape.depth
    log_probs = -np.sort(random.exponential(1.5, (rows, shape.cap)))
    if ties:
        # Quarters: sums are exact, so paths of one score are many.
        log_probs = np.round(2 * log_probs) / 4
    tokens = np.stack([random.permutation(256)[: shape.cap] for _ in range(rows)])
    return torch.from_numpy(log_probs.astype(np.float32)).to(DEVICE), torch.from_numpy(tokens).to(
        DEVICE
    )


def built(
    shape: TreeShape, log_probs: torch.Tensor, tokens: torch.Tensor, *, batch: int = 3
) -> DraftTree:
    return build_tree(
        log_probs,
        tokens,
        shape,
        roots=ROOTS[:batch],
        prefix_lens=PREFIXES[:batch],
        pool_indices=POOL[:batch],
        req_to_token=REQ_TO_TOKEN,
    )


def expected(
    shape: TreeShape, log_probs: torch.Tensor, tokens: torch.Tensor, request: int
) -> LabTree:
    rows = slice(request * shape.depth, (request + 1) * shape.depth)
    return best_first_tree(
        int(ROOTS[request]),
        Candidates(tokens[rows].cpu().numpy(), log_probs[rows].cpu().numpy()),
        shape.budget,
        shape.seed,
    )


def assert_same_trees(shape: TreeShape, log_probs: torch.Tensor, tokens: torch.Tensor) -> DraftTree:
    batch = len(log_probs) // shape.depth
    tree = built(shape, log_probs, tokens, batch=batch)
    for request in range(batch):
        lab = expected(shape, log_probs, tokens, request)
        assert tree.tokens[request].tolist() == lab.tokens.tolist()
        assert tree.parents[request].tolist() == lab.ancestry.parents.tolist()
        spine = {node for node in range(shape.nodes) if tree.on_spine[request, node]}
        assert spine == set(lab.spine)
    return tree


@pytest.mark.parametrize("budget", [1, 8, 15, 16, 17, 64])
@pytest.mark.parametrize("ties", [False, True])
def test_best_nodes_in_order_at_every_budget(budget: int, ties: bool) -> None:
    shape = TreeShape(budget, depth=15, cap=8, seed=default_chain_seed(budget, 16))
    assert_same_trees(shape, *candidates(shape, ties=ties, seed=budget))


@pytest.mark.parametrize("seed_depth", [0, 3, 15])
@pytest.mark.parametrize("cap", [2, 8])
def test_the_seed_keeps_the_spine_whatever_its_score(seed_depth: int, cap: int) -> None:
    shape = TreeShape(16, depth=15, cap=cap, seed=seed_depth)
    tree = assert_same_trees(shape, *candidates(shape, ties=True, seed=3))
    assert (tree.on_spine.sum(dim=1) - 1 >= seed_depth).all()


def test_one_candidate_per_depth_makes_a_chain() -> None:
    shape = TreeShape(15, depth=15, cap=1, seed=0)
    tree = assert_same_trees(shape, *candidates(shape))
    assert tree.parents.tolist() == [list(range(-1, 15))] * 3
    assert (tree.next_sibling == -1).all()


def test_short_blocks_and_equal_scores_everywhere() -> None:
    shape = TreeShape(30, depth=3, cap=4, seed=1)
    _, tokens = candidates(shape)
    assert_same_trees(shape, torch.full(tokens.shape, -0.5), tokens)


def test_the_largest_cap_still_orders_the_deepest_places() -> None:
    shape = TreeShape(20, depth=15, cap=TreeShape(1, 15, 1, 0).largest_cap, seed=14)
    assert shape.cap == 18
    _, tokens = candidates(shape)
    assert_same_trees(shape, torch.full(tokens.shape, -0.5), tokens)


def test_links_and_positions_follow_the_parents() -> None:
    shape = TreeShape(17, depth=15, cap=8, seed=4)
    tree = built(shape, *candidates(shape, seed=5))
    for request in range(3):
        parents = tree.parents[request].tolist()
        depth = [0] * shape.nodes
        children: dict[int, list[int]] = {node: [] for node in range(shape.nodes)}
        for node in range(1, shape.nodes):
            assert parents[node] < node
            depth[node] = depth[parents[node]] + 1
            children[parents[node]].append(node)
        prefix = int(PREFIXES[request])
        assert tree.positions[request].tolist() == [prefix + deep for deep in depth]
        siblings = {b: a for family in children.values() for a, b in pairwise(family)}
        for node, family in children.items():
            assert tree.next_token[request, node] == (family[0] if family else -1)
            following = [b for b, a in siblings.items() if a == node]
            assert tree.next_sibling[request, node] == (following[0] if following else -1)


def test_slots_are_those_of_the_positions_after_the_prefix() -> None:
    shape = TreeShape(8, depth=15, cap=8, seed=4)
    tree = built(shape, *candidates(shape))
    for request in range(3):
        first = 1000 * int(POOL[request]) + int(PREFIXES[request])
        assert tree.slots[request].tolist() == list(range(first, first + shape.nodes))


@pytest.mark.parametrize("budget", [1, 8, 15, 16, 17, 64])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_mask_shows_each_node_its_ancestors_only(budget: int, batch: int) -> None:
    shape = TreeShape(budget, depth=15, cap=8, seed=0)
    tree = built(shape, *candidates(shape, batch=batch, seed=9), batch=batch)
    nodes, prefixes = shape.nodes, PREFIXES[:batch]
    cells = nodes * (int(prefixes.sum()) + batch * nodes)
    mask = torch.full((cells + 5,), UNTOUCHED, dtype=torch.uint8)
    fill_tree_mask(tree, prefixes, shape, mask)

    start = 0
    for request, prefix in enumerate(prefixes.tolist()):
        end = start + nodes * (prefix + nodes)
        rows = mask[start:end].view(nodes, prefix + nodes)
        start = end
        assert (rows[:, :prefix] == UNTOUCHED).all()
        visible = torch.zeros((nodes, nodes), dtype=torch.uint8)
        for node in range(nodes):
            ancestor = node
            while ancestor >= 0:
                visible[node, ancestor] = 1
                ancestor = int(tree.parents[request, ancestor])
        assert torch.equal(rows[:, prefix:], visible)
    assert (mask[cells:] == UNTOUCHED).all()


def test_candidates_of_another_batch_are_refused() -> None:
    shape = TreeShape(8, depth=15, cap=8, seed=4)
    log_probs, tokens = candidates(shape, batch=2)
    with pytest.raises(ValueError, match="3 requests"):
        built(shape, log_probs, tokens, batch=3)


def test_limits_and_defaults_are_the_lab_engines() -> None:
    lab = decode.Speculation("DDTREE")
    assert (lab.budget, lab.topk_cap) == (DEFAULT_BUDGET, DEFAULT_CAP)
    assert MAX_BUDGET == decode.MAX_BUDGET


@pytest.mark.parametrize("budget", [1, 2, 16, 17, 31, 64])
def test_the_default_seed_is_the_lab_engines(budget: int) -> None:
    for block_size in (2, 8, 16):
        assert default_chain_seed(budget, block_size) == decode.default_chain_seed(
            budget, block_size
        )
