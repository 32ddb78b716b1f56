"""What a step keeps: the accepted path of each tree, laid out as a chain.

SGLang's verify kernels name the accepted nodes; everything downstream (cache, drafter, scheduler)
expects them at the front. One kernel computes every index that this takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from .tree import DraftTree, TreeShape


@dataclass(frozen=True, slots=True)
class AcceptedPath:
    """The accepted nodes of a batch, root first; places past the path's end are harmless."""

    tokens: torch.Tensor
    """int64 [batch, path]: the accepted drafts and then the bonus token."""
    bonus: torch.Tensor
    """int64 [batch]: the next root."""
    new_seq_lens: torch.Tensor
    """int64 [batch]"""
    rows: torch.Tensor
    """int64 [batch, path]: rows of the flattened verify batch."""
    positions: torch.Tensor
    """int64 [batch, path]: consecutive, from the committed length on."""
    from_slots: torch.Tensor
    """int64 [batch, path]: where the verify pass wrote the cache of these nodes."""
    to_slots: torch.Tensor
    """int64 [batch, path]: where it belongs."""
    off_spine: torch.Tensor
    """int32 [batch]: accepted nodes that the drafter's argmax chain lacks."""


@triton.jit
def _accepted_path_kernel(
    accept_index_ptr,  # [batch, PATH] int32: rows of the flattened batch, -1 past the end
    accept_lens_ptr,  # [batch] int32: the bonus token included
    predict_ptr,  # [batch * NODES] int32: the target's choice at each accepted row
    prefix_lens_ptr,  # [batch]
    slots_ptr,  # [batch, NODES] int64
    on_spine_ptr,  # [batch, NODES] int32
    tokens_ptr,
    bonus_ptr,
    new_seq_lens_ptr,
    rows_ptr,
    positions_ptr,
    from_slots_ptr,
    to_slots_ptr,
    off_spine_ptr,
    NODES: tl.constexpr,
    PATH: tl.constexpr,
    PATH_P2: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    step = tl.arange(0, PATH_P2)
    live = step < PATH
    accepted = tl.load(accept_lens_ptr + request)
    kept = step < accepted
    row = tl.load(accept_index_ptr + request * PATH + step, mask=live & kept, other=0).to(tl.int64)
    row = tl.where(kept, row, request * NODES + step)

    token = tl.load(predict_ptr + row, mask=live & kept, other=0).to(tl.int64)
    prefix = tl.load(prefix_lens_ptr + request).to(tl.int64)
    to_slot = tl.load(slots_ptr + request * NODES + step, mask=live, other=0)
    from_slot = tl.load(slots_ptr + row, mask=live, other=0)
    spine = tl.load(on_spine_ptr + row, mask=live & kept, other=1)

    out = request * PATH + step
    tl.store(tokens_ptr + out, token, mask=live)
    tl.store(rows_ptr + out, row, mask=live)
    tl.store(positions_ptr + out, prefix + step, mask=live)
    tl.store(from_slots_ptr + out, from_slot, mask=live)
    tl.store(to_slots_ptr + out, to_slot, mask=live)
    tl.store(bonus_ptr + request, tl.sum(tl.where(step == accepted - 1, token, 0)))
    tl.store(new_seq_lens_ptr + request, prefix + accepted)
    tl.store(off_spine_ptr + request, tl.sum(tl.where(live & kept, 1 - spine, 0)))


def accepted_path(
    tree: DraftTree,
    shape: TreeShape,
    *,
    accept_index: torch.Tensor,
    accept_lens: torch.Tensor,
    predict: torch.Tensor,
    prefix_lens: torch.Tensor,
) -> AcceptedPath:
    """The path that SGLang's verify kernels accepted (eagle_utils.eagle_sample's three results)."""
    batch, path = accept_index.shape
    wide = {"dtype": torch.int64, "device": accept_index.device}
    accepted = AcceptedPath(
        tokens=torch.empty((batch, path), **wide),
        bonus=torch.empty((batch,), **wide),
        new_seq_lens=torch.empty((batch,), **wide),
        rows=torch.empty((batch, path), **wide),
        positions=torch.empty((batch, path), **wide),
        from_slots=torch.empty((batch, path), **wide),
        to_slots=torch.empty((batch, path), **wide),
        off_spine=torch.empty((batch,), dtype=torch.int32, device=accept_index.device),
    )
    if batch:
        _accepted_path_kernel[(batch,)](
            accept_index,
            accept_lens,
            predict,
            prefix_lens,
            tree.slots,
            tree.on_spine,
            accepted.tokens,
            accepted.bonus,
            accepted.new_seq_lens,
            accepted.rows,
            accepted.positions,
            accepted.from_slots,
            accepted.to_slots,
            accepted.off_spine,
            NODES=shape.nodes,
            PATH=path,
            PATH_P2=triton.next_power_of_2(path),
            num_warps=1,
        )
    return accepted
