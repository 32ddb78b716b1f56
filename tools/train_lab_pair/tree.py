"""Draft trees, as small as can be: enough to count what a tree would have accepted.

The lab engine has its own tree; this one is written apart from it, so that the two can be compared.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

# (log-probability, token) of the candidates of one depth, best first.
Candidates = Sequence[tuple[float, int]]
Children = list[dict[int, int]]


def grow(depths: Sequence[Candidates], budget: int, chain_seed: int) -> tuple[Children, list[bool]]:
    """Best-first by summed log-probability, after a chain of argmax nodes to depth `chain_seed`.

    Returns the children of each node (token -> node; node 0 is the root) and whether each node
    lies on the spine, the drafter's argmax chain. arXiv 2604.12989, algorithm 1.
    """
    children: Children = [{}]
    spine = [True]
    heap: list[tuple[float, int, int, int, int]] = []
    made = 0

    def offer(above: float, parent: int, depth: int, rank: int) -> None:
        nonlocal made
        if depth < len(depths) and rank < len(depths[depth]):
            made += 1
            heapq.heappush(heap, (-(above + depths[depth][rank][0]), made, parent, depth, rank))

    def add(parent: int, depth: int, rank: int) -> int:
        children.append({})
        spine.append(spine[parent] and rank == 0)
        children[parent][depths[depth][rank][1]] = len(children) - 1
        return len(children) - 1

    score, node = 0.0, 0
    for depth in range(min(chain_seed, budget, len(depths))):
        child = add(node, depth, 0)
        offer(score, node, depth, 1)
        score += depths[depth][0][0]
        node = child
    offer(score, node, len(children) - 1, 0)
    while heap and len(children) <= budget:
        negative, _, parent, depth, rank = heapq.heappop(heap)
        above = -negative - depths[depth][rank][0]
        child = add(parent, depth, rank)
        offer(above, parent, depth, rank + 1)
        offer(-negative, child, depth + 1, 0)
    return children, spine


def walk(children: Children, spine: list[bool], continuation: Sequence[int]) -> tuple[int, int]:
    """(accepted nodes, those of them off the spine) when the target goes on with these tokens."""
    node = accepted = off = 0
    for token in continuation:
        if token not in children[node]:
            break
        node = children[node][token]
        accepted += 1
        off += not spine[node]
    return accepted, off
