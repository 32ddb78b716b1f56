"""The draft tree, built on the device: which continuations one target pass will verify.

A node is a choice of candidate ranks from depth 1 down to its own depth; its score is the sum of
their log-probabilities. The tree holds the spine to the seeded depth and then the best other nodes
(DDTree, arXiv 2604.12989). Nodes rank by descending score, then shallower first, then by their
ranks in dictionary order, so that every rank of a tensor-parallel group builds the same tree.

Node 0 is the root, the last committed token; parents precede children and siblings ascend. SGLang's
tree kernels need both.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

_LAST_PLACE = tl.constexpr(2**63 - 1)
_RANKS = 255
"""Ranks and depths that fit the 8 bits which the build kernel gives them."""


@dataclass(frozen=True, slots=True)
class TreeShape:
    """What stays the same from step to step, and so compiles into the kernels."""

    budget: int
    """Nodes besides the root."""
    depth: int
    """Positions that the drafter fills: block size - 1."""
    cap: int
    """Candidates of each depth."""
    seed: int
    """The spine is kept to this depth whatever its score."""

    @property
    def nodes(self) -> int:
        return self.budget + 1

    @property
    def path(self) -> int:
        """Nodes of the longest path, the root included."""
        return min(self.budget, self.depth) + 1

    @property
    def capacity(self) -> int:
        """Nodes besides the root that the candidates allow."""
        return sum(self.cap**depth for depth in range(1, self.depth + 1))

    @property
    def largest_cap(self) -> int:
        """The most candidates of each depth with which every place still has a 63-bit number."""
        cap = 1
        while cap < _RANKS and sum((cap + 1) ** depth for depth in range(self.depth + 1)) < 2**63:
            cap += 1
        return cap


@dataclass(frozen=True, slots=True)
class DraftTree:
    """The trees of a batch, node by node, each [batch, nodes]."""

    tokens: torch.Tensor
    parents: torch.Tensor
    """int32; -1 at the root."""
    positions: torch.Tensor
    """Committed length + depth."""
    next_token: torch.Tensor
    """The first child, or -1."""
    next_sibling: torch.Tensor
    on_spine: torch.Tensor
    """int32; 1 on the drafter's argmax chain, the root included."""
    slots: torch.Tensor
    """Cache slots: node i of a request is written where its committed length + i maps to."""


@triton.jit
def _best_first_tree_kernel(
    log_probs_ptr,  # [batch * DEPTH, K] float32
    candidates_ptr,  # [batch * DEPTH, K] int64
    roots_ptr,  # [batch] int64
    prefix_lens_ptr,  # [batch]
    pool_indices_ptr,  # [batch]
    req_to_token_ptr,  # [pool, context] int32
    tokens_ptr,
    parents_ptr,
    positions_ptr,
    next_token_ptr,
    next_sibling_ptr,
    on_spine_ptr,
    slots_ptr,
    roots_stride,
    req_to_token_stride,
    NODES: tl.constexpr,
    NODES_P2: tl.constexpr,
    DEPTH: tl.constexpr,
    K: tl.constexpr,
    SEED: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    log_probs_ptr += request * DEPTH * K
    candidates_ptr += request * DEPTH * K
    node = tl.arange(0, NODES_P2)
    is_root = node == 0

    # A place in the K-ary tree of all candidates is numbered like a heap's: the children of place p
    # are K p + 1 to K p + K. Shallower places come first, and at one depth dictionary order is
    # number order. Scores are float64: the sums of one path are then the same in any program.
    place = tl.zeros((NODES_P2,), tl.int64)
    parent = tl.where(is_root, -1, 0)
    rank = tl.zeros((NODES_P2,), tl.int32)
    depth = tl.zeros((NODES_P2,), tl.int32)
    spine = tl.where(is_root, 1, 0)
    next_token = tl.full((NODES_P2,), -1, tl.int32)
    next_sibling = tl.full((NODES_P2,), -1, tl.int32)
    score = tl.zeros((NODES_P2,), tl.float64)
    parent_score = tl.zeros((NODES_P2,), tl.float64)

    # What each node offers to add next: its first child and its next sibling.
    nothing = tl.full((NODES_P2,), float("-inf"), tl.float64)
    sibling_offer = nothing
    child_offer = tl.where(is_root, tl.load(log_probs_ptr).to(tl.float64), nothing)

    for added in range(1, NODES):
        # At equal scores the sibling is the better offer of one node, being shallower.
        offers_child = child_offer > sibling_offer
        offer = tl.where(offers_child, child_offer, sibling_offer)
        if added <= SEED:
            offer = tl.where(node == added - 1, child_offer, nothing)
            offers_child = node == added - 1
        offered_place = tl.where(offers_child, place * K + 1, place + 1)
        best = tl.max(offer)
        best_place = tl.min(tl.where(offer == best, offered_place, _LAST_PLACE))
        taken = (offer == best) & (offered_place == best_place)
        takes_child = taken & offers_child
        takes_sibling = taken & (offers_child == 0)

        packed = tl.where(
            takes_child,
            (node << 17) | ((depth + 1) << 9) | spine,
            (parent << 17) | (depth << 9) | ((rank + 1) << 1),
        )
        new = tl.sum(tl.where(taken, packed, 0))
        new_parent, new_depth = new >> 17, (new >> 9) & 255
        new_rank, new_spine = (new >> 1) & 255, new & 1
        above = tl.sum(tl.where(taken, tl.where(offers_child, score, parent_score), 0.0))

        next_token = tl.where(takes_child, added, next_token)
        next_sibling = tl.where(takes_sibling, added, next_sibling)
        child_offer = tl.where(takes_child, nothing, child_offer)
        sibling_offer = tl.where(takes_sibling, nothing, sibling_offer)

        is_new = node == added
        place = tl.where(is_new, best_place, place)
        parent = tl.where(is_new, new_parent, parent)
        rank = tl.where(is_new, new_rank, rank)
        depth = tl.where(is_new, new_depth, depth)
        spine = tl.where(is_new, new_spine, spine)
        score = tl.where(is_new, best, score)
        parent_score = tl.where(is_new, above, parent_score)
        below = tl.load(log_probs_ptr + new_depth * K, mask=new_depth < DEPTH, other=0.0)
        beside = tl.load(
            log_probs_ptr + (new_depth - 1) * K + new_rank + 1, mask=new_rank + 1 < K, other=0.0
        )
        child_offer = tl.where(
            is_new & (new_depth < DEPTH), best + below.to(tl.float64), child_offer
        )
        sibling_offer = tl.where(
            is_new & (new_rank + 1 < K), above + beside.to(tl.float64), sibling_offer
        )

    live = node < NODES
    out = request * NODES + node
    drafted = tl.load(candidates_ptr + (depth - 1) * K + rank, mask=live & (is_root == 0), other=0)
    token = tl.where(is_root, tl.load(roots_ptr + request * roots_stride), drafted)
    prefix = tl.load(prefix_lens_ptr + request).to(tl.int64)
    row = tl.load(pool_indices_ptr + request).to(tl.int64) * req_to_token_stride
    # A row's last columns can be reached only by nodes too deep to be committed.
    slot = tl.load(
        req_to_token_ptr + row + prefix + node,
        mask=live & (prefix + node < req_to_token_stride),
        other=0,
    )
    tl.store(tokens_ptr + out, token, mask=live)
    tl.store(parents_ptr + out, parent, mask=live)
    tl.store(positions_ptr + out, prefix + depth, mask=live)
    tl.store(next_token_ptr + out, next_token.to(tl.int64), mask=live)
    tl.store(next_sibling_ptr + out, next_sibling.to(tl.int64), mask=live)
    tl.store(on_spine_ptr + out, spine, mask=live)
    tl.store(slots_ptr + out, slot.to(tl.int64), mask=live)


def build_tree(
    log_probs: torch.Tensor,
    candidates: torch.Tensor,
    shape: TreeShape,
    *,
    roots: torch.Tensor,
    prefix_lens: torch.Tensor,
    pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
) -> DraftTree:
    """The trees of `batch` requests from their candidates [batch * depth, cap], in one launch.

    `roots` are the last committed tokens [batch], `prefix_lens` the tokens before them, and row
    `pool_indices[i]` of `req_to_token` maps the positions of request i to cache slots.
    """
    batch = prefix_lens.shape[0]
    if log_probs.shape != (batch * shape.depth, shape.cap) or candidates.shape != log_probs.shape:
        raise ValueError(f"candidates of {batch} requests cannot be {tuple(log_probs.shape)}")
    wide = {"dtype": torch.int64, "device": log_probs.device}
    narrow = {"dtype": torch.int32, "device": log_probs.device}
    of = (batch, shape.nodes)
    tree = DraftTree(
        tokens=torch.empty(of, **wide),
        parents=torch.empty(of, **narrow),
        positions=torch.empty(of, **wide),
        next_token=torch.empty(of, **wide),
        next_sibling=torch.empty(of, **wide),
        on_spine=torch.empty(of, **narrow),
        slots=torch.empty(of, **wide),
    )
    if batch == 0:
        return tree
    _best_first_tree_kernel[(batch,)](
        log_probs,
        candidates,
        roots,
        prefix_lens,
        pool_indices,
        req_to_token,
        tree.tokens,
        tree.parents,
        tree.positions,
        tree.next_token,
        tree.next_sibling,
        tree.on_spine,
        tree.slots,
        roots.stride(0),
        req_to_token.stride(0),
        NODES=shape.nodes,
        NODES_P2=triton.next_power_of_2(shape.nodes),
        DEPTH=shape.depth,
        K=shape.cap,
        SEED=shape.seed,
        # One warp: every reduction of the loop is then a shuffle.
        num_warps=1,
    )
    return tree


@triton.jit
def _tree_mask_kernel(
    parents_ptr,  # [batch, NODES] int32
    prefix_lens_ptr,  # [batch]
    mask_ptr,  # uint8
    NODES: tl.constexpr,
    NODES_P2: tl.constexpr,
    PATH: tl.constexpr,
    BATCH_P2: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1).to(tl.int64)
    earlier = tl.arange(0, BATCH_P2)
    before = tl.load(prefix_lens_ptr + earlier, mask=earlier < request, other=0).to(tl.int64)
    prefix = tl.load(prefix_lens_ptr + request).to(tl.int64)
    cells = NODES * (tl.sum(before) + request * NODES) + row * (prefix + NODES) + prefix

    node = tl.arange(0, NODES_P2)
    visible = node == row
    ancestor = tl.load(parents_ptr + request * NODES + row)
    for _ in range(PATH - 1):
        visible = visible | (node == ancestor)
        above = tl.load(parents_ptr + request * NODES + tl.maximum(ancestor, 0))
        ancestor = tl.where(ancestor > 0, above, -1)
    tl.store(mask_ptr + cells + node, visible.to(tl.uint8), mask=node < NODES)


def fill_tree_mask(
    tree: DraftTree, prefix_lens: torch.Tensor, shape: TreeShape, mask: torch.Tensor
) -> None:
    """Writes which nodes each node sees into `mask`, laid out as SGLang's FULL tree mask.

    Row i of a request has prefix + nodes cells, requests follow one another (triton_backend.py,
    mask_indptr). Only the nodes' own cells are written: the extend kernel never reads a prefix cell
    (skip_prefix_custom_mask).
    """
    batch = tree.parents.shape[0]
    if batch == 0:
        return
    _tree_mask_kernel[(batch, shape.nodes)](
        tree.parents,
        prefix_lens,
        mask.view(torch.uint8),
        NODES=shape.nodes,
        NODES_P2=triton.next_power_of_2(shape.nodes),
        PATH=shape.path,
        BATCH_P2=triton.next_power_of_2(batch),
        num_warps=1,
    )
