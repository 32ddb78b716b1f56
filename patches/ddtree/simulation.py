"""Forced accept lengths, to measure the cost of a step apart from what a drafter is worth.

SGLANG_SIMULATE_ACC_LEN forces the length, as for SGLang's own algorithms: its walk then takes the
first nodes of a tree for the path, which are the chain seed. On them nothing has to be moved, so
DDTREE_SIMULATE_PATH=off-spine takes as many nodes from the end of the tree instead: their keys and
values move, and the recurrent state is another node's. They need not be a path, so the text means
nothing; neither does it on the spine.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import torch
from sglang.srt.speculative.spec_utils import SIMULATE_ACC_LEN, SIMULATE_ACC_METHOD

from .tree import TreeShape

PATH_VARIABLE = "DDTREE_SIMULATE_PATH"


@dataclass(frozen=True, slots=True)
class Simulation:
    """What is accepted off the spine, in place of the chain seed."""

    nodes: int

    @classmethod
    def asked_for(cls, shape: TreeShape) -> Simulation | None:
        """None if nothing is simulated, or along the spine. ValueError if the tree cannot."""
        if SIMULATE_ACC_LEN <= 0:
            return None
        drafts = math.ceil(SIMULATE_ACC_LEN) - 1
        if SIMULATE_ACC_METHOD != "match-expected" or drafts > shape.seed:
            raise ValueError(
                f"SGLANG_SIMULATE_ACC_LEN={SIMULATE_ACC_LEN} reaches beyond the chain seed of "
                f"{shape.seed}; raise --speculative-ddtree-chain-seed (and "
                "SGLANG_SIMULATE_ACC_METHOD must be match-expected)"
            )
        path = os.environ.get(PATH_VARIABLE, "spine")
        if path == "spine":
            return None
        if path != "off-spine":
            raise ValueError(f"{PATH_VARIABLE} must be spine or off-spine, got {path}")
        if shape.budget - drafts < shape.seed:
            raise ValueError(
                f"{PATH_VARIABLE}=off-spine needs {drafts} nodes beside the chain seed of "
                f"{shape.seed}; raise --speculative-ddtree-budget or lower the chain seed"
            )
        return cls(shape.nodes)

    def moved(self, accept_index: torch.Tensor, accept_lens: torch.Tensor) -> torch.Tensor:
        """`accept_index` [batch, path] with its drafts replaced by the last nodes of each tree."""
        step = torch.arange(accept_index.shape[1], dtype=torch.int32, device=accept_index.device)
        last = accept_index[:, :1] + self.nodes - accept_lens[:, None] + step
        is_draft = (step > 0) & (step < accept_lens[:, None])
        return torch.where(is_draft, last, accept_index)
