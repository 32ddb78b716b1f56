"""From the drafter's hidden states to candidates, inside its CUDA graph or after it."""

from __future__ import annotations

from typing import Any

import torch

from .candidates import VocabularyShard, rank_candidates


def vocabulary_shard(lm_head: Any, group: Any) -> VocabularyShard:
    """The part of the target's head on this rank. ValueError where it has no plain weight."""
    weight = getattr(lm_head, "weight", None)
    if weight is None or not torch.is_floating_point(weight) or weight.element_size() < 2:
        raise ValueError(
            "DDTREE ranks candidates with the target's lm_head, which is absent or quantised here; "
            "use a checkpoint with a head in bf16, fp16 or fp32"
        )
    many = group.world_size > 1
    if not hasattr(lm_head, "shard_indices"):
        if many:
            raise ValueError("DDTREE: this lm_head cannot be split; use --tp-size 1")
        return VocabularyShard(weight, int(weight.shape[0]))
    shard = lm_head.shard_indices
    if int(shard.num_added_elements) != 0:
        raise ValueError("DDTREE does not support a vocabulary extended by added tokens (LoRA)")
    return VocabularyShard(
        weight,
        int(shard.num_org_elements),
        int(shard.org_vocab_start_index),
        group if many else None,
    )


class CandidateSampler:
    """Ranks the candidates of positions 1 to block size - 1 of each drafted block.

    Called as the tail of the draft graph it leaves its results at fixed addresses; `rank` is its
    eager twin, with the same launches and the same collectives.
    """

    def __init__(self, shard: VocabularyShard, *, block_size: int, cap: int, max_batch: int):
        self._shard = shard
        self._block_size = block_size
        rows = max_batch * (block_size - 1)
        device = shard.weight.device
        self.log_probs = torch.empty((rows, cap), dtype=torch.float32, device=device)
        self.tokens = torch.empty((rows, cap), dtype=torch.int64, device=device)
        self.out = torch.empty((rows,), dtype=torch.int64, device=device)
        """The argmax chain, where DFLASH looks for it."""

    def __call__(self, hidden_states: torch.Tensor, input_ids: torch.Tensor | None = None) -> None:
        log_probs, tokens = self.rank(hidden_states)
        rows = tokens.shape[0]
        self.log_probs[:rows].copy_(log_probs)
        self.tokens[:rows].copy_(tokens)
        self.out[:rows].copy_(tokens[:, 0])

    def rank(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and ids [batch * (block size - 1), cap] of `hidden_states`
        [batch * block size, hidden]."""
        width = hidden_states.shape[-1]
        blocks = hidden_states.view(-1, self._block_size, width)
        drafted = blocks[:, 1:, :].reshape(-1, width)
        return rank_candidates(drafted, self._shard, self.tokens.shape[1])
