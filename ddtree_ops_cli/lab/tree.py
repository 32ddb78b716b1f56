"""The draft tree: which continuations of the last token one target pass will verify.

DDTree (arXiv 2604.12989): the drafter gives one distribution for each depth; a node is a choice of
candidate ranks from depth 1 down to its own depth and scores the sum of their log-probabilities.
The tree is the `budget` best nodes, which a heap finds best-first. A DFlash block is the tree that
has only the argmax at every depth, and plain decoding the tree that has only its root.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from .ancestry import Ancestry
from .arrays import Floats, Indices
from .sampling import Choose


@dataclass(frozen=True, slots=True)
class Candidates:
    """The best tokens of each depth, best first: token ids and log-probabilities [D, K]."""

    tokens: Indices
    log_probs: Floats


@dataclass(frozen=True, slots=True)
class DraftTree:
    """The root and its drafted nodes; parents precede children, siblings ascend by rank."""

    tokens: Indices
    """[N]; node 0, the root, is the last committed token."""
    ancestry: Ancestry
    spine: frozenset[int]
    """Nodes on the drafter's argmax chain, the root included."""

    @property
    def proposed(self) -> int:
        """Nodes besides the root."""
        return len(self.tokens) - 1


def top_candidates(logits: Floats, cap: int) -> Candidates:
    """The `cap` most probable tokens of each row of `logits` [D, vocabulary].

    Log-probability is logit - logsumexp over the whole vocabulary. Equal logits rank by ascending
    token id.
    """
    top = logits.max(axis=-1, keepdims=True)
    log_sum = top[:, 0] + np.log(np.exp(logits - top).sum(axis=-1))
    cap = min(cap, logits.shape[-1])
    least = np.partition(logits, -cap, axis=-1)[:, -cap]
    tokens = np.empty((len(logits), cap), np.intp)
    for depth, row in enumerate(logits):
        # Every token that ties with the last place competes; flatnonzero lists them by id.
        contenders = np.flatnonzero(row >= least[depth])
        tokens[depth] = contenders[np.argsort(-row[contenders], kind="stable")[:cap]]
    return Candidates(tokens, np.take_along_axis(logits, tokens, axis=-1) - log_sum[:, None])


def root_only(root: int) -> DraftTree:
    """Nothing drafted: the pass computes the token after `root`."""
    return DraftTree(np.array([root], np.intp), Ancestry.chain(1), frozenset({0}))


def chain_tree(root: int, tokens: Indices) -> DraftTree:
    """The DFlash block: `tokens` [D], each the child of the one before."""
    nodes = np.concatenate([np.array([root], np.intp), tokens])
    return DraftTree(nodes, Ancestry.chain(len(nodes)), frozenset(range(len(nodes))))


def best_first_tree(
    root: int, candidates: Candidates, budget: int, chain_seed: int = 0
) -> DraftTree:
    """The spine to depth `chain_seed`, then the best other nodes, `budget` in all.

    Fewer where the candidates allow fewer. Nodes rank by descending score; at equal scores the
    shallower node comes first, then the one whose ranks, read from depth 1, come first in
    dictionary order. A node never ranks before its parent or its previous sibling, so best-first
    search finds exactly the best nodes under that order.
    """
    log_probs = candidates.log_probs.tolist()
    deepest, cap = candidates.tokens.shape
    parents, ranks, depths, scores = [-1], [0], [0], [0.0]
    # A node's ranks written as digits in base `cap`: at one depth, numbers order as dictionaries.
    codes = [0]
    heap: list[tuple[float, int, int, int, int]] = []

    def offer(parent: int, rank: int) -> None:
        depth = depths[parent] + 1
        if depth <= deepest and rank < cap:
            score = scores[parent] + log_probs[depth - 1][rank]
            code = codes[parent] * cap + rank
            heapq.heappush(heap, (-score, depth, code, parent, rank))

    def add(parent: int, rank: int) -> int:
        depths.append(depths[parent] + 1)
        scores.append(scores[parent] + log_probs[depths[parent]][rank])
        codes.append(codes[parent] * cap + rank)
        parents.append(parent)
        ranks.append(rank)
        offer(parent, rank + 1)
        return len(parents) - 1

    seed = min(chain_seed, deepest, budget)
    for parent in range(seed):
        add(parent, 0)
    offer(seed, 0)
    while heap and len(parents) <= budget:
        *_, parent, rank = heapq.heappop(heap)
        offer(add(parent, rank), 0)

    drafted = candidates.tokens[np.array(depths[1:], np.intp) - 1, ranks[1:]]
    nodes = np.concatenate([np.array([root], np.intp), drafted])
    spine = frozenset(node for node, code in enumerate(codes) if code == 0)
    return DraftTree(nodes, Ancestry.of(np.array(parents, np.intp)), spine)


def accepted_at_least(tree: DraftTree, accepted: int, bonus: int) -> int:
    """How many drafts `tree` would have accepted at least, told from a pass over the chain alone.

    The chain has shown the target's choices along the spine: `accepted` of its drafts, and then
    `bonus`. What the target wants below a node off the spine, the chain cannot know.
    """
    if accepted >= len(tree.spine):
        return len(tree.spine) - 1
    # One node of the spine at each depth, and parents precede children.
    leaf = sorted(tree.spine)[accepted]
    branches = (tree.ancestry.parents == leaf) & (tree.tokens == bonus)
    return accepted + bool(branches.any())


def walk(tree: DraftTree, logits: Floats, choose: Choose) -> tuple[Indices, int]:
    """Follows the target's own choices from the root while a child matches.

    `logits` [N, vocabulary] of the tree's nodes; `choose` picks a token from one row of them, by
    argmax or by sampling, so the output is the target's own whatever was drafted. Returns the
    accepted path, root first, and the bonus token: the first choice without a matching child.
    """
    children = {
        (parent, token): node
        for node, (parent, token) in enumerate(
            zip(tree.ancestry.parents.tolist(), tree.tokens.tolist(), strict=True)
        )
    }
    path = [0]
    while True:
        token = choose(logits[path[-1]])
        child = children.get((path[-1], token))
        if child is None:
            return np.array(path, np.intp), token
        path.append(child)
