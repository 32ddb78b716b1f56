"""The candidates of each depth: the most probable tokens of the drafter, with log-probabilities.

DFLASH takes the argmax of hidden @ lm_head.T; the tree needs the K best logits of that same
product and the logsumexp of each row. Both come out of one pass over the logits: each part of the
vocabulary gives its own K best and its partial sum, and a second kernel merges the parts. Ranks
of a tensor-parallel group are merged by the same kernel, so they exchange K values and ids, one
maximum and one sum per row, and never logits.

Equal logits rank by ascending token id, as torch.argmax does: the spine is the chain of DFLASH.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

PART_SIZE = 4096
"""Logits that one program of the first kernel ranks."""

IMPOSSIBLE = tl.constexpr(-1.0e30)
"""Log-probability of a token that cannot be drawn: finite, so that sums of it still compare."""
_NO_TOKEN = tl.constexpr(2**31 - 1)


@triton.jit
def _rank_parts_kernel(
    logits_ptr,  # [rows, vocabulary]
    values_ptr,  # [parts, rows, K] float32
    tokens_ptr,  # [parts, rows, K] int64
    tops_ptr,  # [parts, rows] float32: the largest logit
    sums_ptr,  # [parts, rows] float32: sum of exp(logit - top)
    first_token,
    vocabulary,
    rows,
    logits_stride,
    K: tl.constexpr,
    PART_SIZE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1).to(tl.int64)
    index = part * PART_SIZE + tl.arange(0, PART_SIZE)
    logits = tl.load(
        logits_ptr + row * logits_stride + index, mask=index < vocabulary, other=float("-inf")
    ).to(tl.float32)

    top = tl.max(logits)
    safe_top = tl.where(top > float("-inf"), top, 0.0)
    out = part * rows + row
    tl.store(tops_ptr + out, top)
    tl.store(sums_ptr + out, tl.sum(tl.exp(logits - safe_top)))

    for rank in range(K):
        best = tl.max(logits)
        taken = tl.min(tl.where(logits == best, index, _NO_TOKEN))
        token = tl.where(best > float("-inf"), taken + first_token, _NO_TOKEN)
        tl.store(values_ptr + out * K + rank, best)
        tl.store(tokens_ptr + out * K + rank, token)
        logits = tl.where(index == taken, float("-inf"), logits)


@triton.jit
def _merge_parts_kernel(
    values_ptr,  # [parts, rows, K] float32
    tokens_ptr,  # [parts, rows, K] int64
    tops_ptr,  # [parts, rows] float32
    sums_ptr,  # [parts, rows] float32
    merged_values_ptr,  # [rows, K] float32
    merged_tokens_ptr,  # [rows, K] int64
    merged_tops_ptr,  # [rows] float32
    merged_sums_ptr,  # [rows] float32
    parts,
    values_part_stride,
    values_row_stride,
    tokens_part_stride,
    sums_part_stride,
    sums_row_stride,
    merged_row_stride,
    merged_sums_row_stride,
    K: tl.constexpr,
    PARTS_P2: tl.constexpr,
    ENTRIES_P2: tl.constexpr,
    NORMALISE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS_P2)
    at = part.to(tl.int64) * sums_part_stride + row * sums_row_stride
    tops = tl.load(tops_ptr + at, mask=part < parts, other=float("-inf"))
    sums = tl.load(sums_ptr + at, mask=part < parts, other=0.0)
    top = tl.max(tops)
    safe_top = tl.where(top > float("-inf"), top, 0.0)
    total = tl.sum(sums * tl.exp(tops - safe_top))

    entry = tl.arange(0, ENTRIES_P2)
    source, rank = (entry // K).to(tl.int64), entry % K
    live = source < parts
    values = tl.load(
        values_ptr + source * values_part_stride + row * values_row_stride + rank,
        mask=live,
        other=float("-inf"),
    )
    tokens = tl.load(
        tokens_ptr + source * tokens_part_stride + row * K + rank, mask=live, other=_NO_TOKEN
    )
    if not NORMALISE:
        tl.store(merged_tops_ptr + row * merged_sums_row_stride, top)
        tl.store(merged_sums_ptr + row * merged_sums_row_stride, total)
    log_total = safe_top + tl.log(total)
    for place in range(K):
        best = tl.max(values)
        token = tl.min(tl.where(values == best, tokens, _NO_TOKEN))
        values = tl.where((values == best) & (tokens == token), float("-inf"), values)
        value = best
        if NORMALISE:
            value = best - log_total
            # False for NaN too: a drafter that diverges costs acceptance, never a bad index.
            value = tl.where(value > IMPOSSIBLE, value, IMPOSSIBLE)
            token = tl.where(token == _NO_TOKEN, 0, token)
        tl.store(merged_values_ptr + row * merged_row_stride + place, value)
        tl.store(merged_tokens_ptr + row * K + place, token)


@dataclass(frozen=True, slots=True)
class VocabularyShard:
    """The rows of the target's head that this rank holds, and the group that holds the rest."""

    weight: torch.Tensor
    """[rows held, hidden]; rows from `size` on are padding."""
    size: int
    first_token: int = 0
    group: Any = None
    """A tensor-parallel group of more than one rank, else None."""


def rank_candidates(
    hidden: torch.Tensor, shard: VocabularyShard, cap: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The `cap` most probable tokens of each row of `hidden` [rows, hidden].

    Returns log-probabilities float32 [rows, cap] and token ids int64 [rows, cap], best first.
    Launches only; it runs inside a CUDA graph and outside.
    """
    logits = torch.matmul(hidden.to(shard.weight.dtype), shard.weight[: shard.size].T)
    return rank_logits(logits, cap, first_token=shard.first_token, group=shard.group)


def rank_logits(
    logits: torch.Tensor, cap: int, *, first_token: int = 0, group: Any = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """`rank_candidates` from this rank's logits [rows, tokens held]."""
    rows, vocabulary = logits.shape
    device = logits.device
    parts = max(1, triton.cdiv(vocabulary, PART_SIZE))
    values = torch.empty((parts, rows, cap), dtype=torch.float32, device=device)
    tokens = torch.empty((parts, rows, cap), dtype=torch.int64, device=device)
    tops = torch.empty((parts, rows), dtype=torch.float32, device=device)
    sums = torch.empty((parts, rows), dtype=torch.float32, device=device)
    if rows == 0:
        return values[0], tokens[0]
    _rank_parts_kernel[(rows, parts)](
        logits,
        values,
        tokens,
        tops,
        sums,
        first_token,
        vocabulary,
        rows,
        logits.stride(0),
        K=cap,
        PART_SIZE=PART_SIZE,
        num_warps=8,
    )
    if group is None:
        return _merge(values, tokens, tops, sums)
    mine, my_tokens = _merge_local(values, tokens, tops, sums)
    everyone = torch.empty((group.world_size, *mine.shape), dtype=mine.dtype, device=device)
    all_tokens = torch.empty(
        (group.world_size, *my_tokens.shape), dtype=my_tokens.dtype, device=device
    )
    group.all_gather_into_tensor(everyone.view(-1, cap + 2), mine)
    group.all_gather_into_tensor(all_tokens.view(-1, cap), my_tokens)
    return _merge(everyone[..., :cap], all_tokens, everyone[..., cap], everyone[..., cap + 1])


def _merge(
    values: torch.Tensor, tokens: torch.Tensor, tops: torch.Tensor, sums: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    _, rows, cap = values.shape
    log_probs = torch.empty((rows, cap), dtype=torch.float32, device=values.device)
    merged = torch.empty((rows, cap), dtype=torch.int64, device=values.device)
    _launch_merge(values, tokens, tops, sums, log_probs, merged, log_probs, log_probs, True)
    return log_probs, merged


def _merge_local(
    values: torch.Tensor, tokens: torch.Tensor, tops: torch.Tensor, sums: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits, top and sum of this rank side by side, [rows, cap + 2], and its token ids."""
    _, rows, cap = values.shape
    packed = torch.empty((rows, cap + 2), dtype=torch.float32, device=values.device)
    merged = torch.empty((rows, cap), dtype=torch.int64, device=values.device)
    top, total = packed[:, cap], packed[:, cap + 1]
    _launch_merge(values, tokens, tops, sums, packed, merged, top, total, False)
    return packed, merged


def _launch_merge(
    values: torch.Tensor,
    tokens: torch.Tensor,
    tops: torch.Tensor,
    sums: torch.Tensor,
    merged: torch.Tensor,
    merged_tokens: torch.Tensor,
    merged_tops: torch.Tensor,
    merged_sums: torch.Tensor,
    normalise: bool,
) -> None:
    parts, rows, cap = values.shape
    _merge_parts_kernel[(rows,)](
        values,
        tokens,
        tops,
        sums,
        merged,
        merged_tokens,
        merged_tops,
        merged_sums,
        parts,
        values.stride(0),
        values.stride(1),
        tokens.stride(0),
        tops.stride(0),
        tops.stride(1),
        merged.stride(0),
        merged_tops.stride(0),
        K=cap,
        PARTS_P2=triton.next_power_of_2(parts),
        ENTRIES_P2=triton.next_power_of_2(parts * cap),
        NORMALISE=normalise,
        num_warps=4,
    )
