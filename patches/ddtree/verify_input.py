"""The verify pass of a batch of trees, as attention backends and verify kernels read it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.speculative.dflash_info import DFlashVerifyInput

from .tree import DraftTree, TreeShape


@dataclass
class TreeVerifyInput(DFlashVerifyInput):
    """A DFLASH verify input with a mask and the links between nodes; None during capture."""

    topk: int = 2
    retrieve_index: torch.Tensor | None = None
    """[batch, nodes]: rows of the flattened batch."""
    retrieve_next_token: torch.Tensor | None = None
    retrieve_next_sibling: torch.Tensor | None = None
    max_tree_depth: int = 1
    """Nodes of the longest path, the root included (eagle_utils.eagle_sample)."""
    tree_topk: int = -1

    @classmethod
    def of(cls, tree: DraftTree, shape: TreeShape, mask: torch.Tensor) -> TreeVerifyInput:
        batch, nodes = tree.tokens.shape
        rows = torch.arange(batch * nodes, dtype=torch.int64, device=tree.tokens.device)
        return cls(
            draft_token=tree.tokens.view(-1),
            positions=tree.positions.view(-1),
            draft_token_num=nodes,
            custom_mask=mask,
            capture_hidden_mode=CaptureHiddenMode.FULL,
            retrieve_index=rows.view(batch, nodes),
            retrieve_next_token=tree.next_token,
            retrieve_next_sibling=tree.next_sibling,
            max_tree_depth=shape.path,
        )

    @classmethod
    def for_capture(cls, shape: TreeShape, mask: torch.Tensor | None) -> TreeVerifyInput:
        return cls(
            draft_token=None,
            positions=None,
            draft_token_num=shape.nodes,
            custom_mask=mask,
            capture_hidden_mode=CaptureHiddenMode.FULL,
            max_tree_depth=shape.path,
        )
