"""The DFlash drafter in PyTorch, with the parameter names of its checkpoints (arXiv 2602.06036).

A block is [last committed token, mask x 15]. Its tokens see each other in both directions and the
context before the block: the target's hidden states, projected once and fed to every layer as
extra keys and values. The target's embedding and head serve it and stay frozen.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from .shapes import MASK, DrafterShape
from .target import MLP, RMSNorm, rotate


class BlockAttention(nn.Module):
    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.shape = shape
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, width, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden, bias=False)
        self.q_norm = RMSNorm(shape.head_dim, shape.eps)
        self.k_norm = RMSNorm(shape.head_dim, shape.eps)

    def _turn(self, x: Tensor, positions: Tensor) -> Tensor:
        return rotate(x, positions, self.shape.head_dim, self.shape.rope_theta)

    def _keys_values(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        heads = (self.shape.kv_heads, self.shape.head_dim)
        k = self._turn(self.k_norm(self.k_proj(x).unflatten(-1, heads)), positions)
        return k, self.v_proj(x).unflatten(-1, heads)

    def forward(
        self, x: Tensor, positions: Tensor, context: Tensor, places: Tensor, mask: Tensor
    ) -> Tensor:
        shape = self.shape
        q = self.q_norm(self.q_proj(x).unflatten(-1, (shape.heads, shape.head_dim)))
        q = self._turn(q, positions)
        seen, own = self._keys_values(context, places), self._keys_values(x, positions)
        repeat = shape.heads // shape.kv_heads
        k, v = (
            torch.cat(pair, 1).repeat_interleave(repeat, 2).transpose(1, 2)
            for pair in zip(seen, own, strict=True)
        )
        out = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k, v.to(k.dtype), attn_mask=mask
        )
        return self.o_proj(out.transpose(1, 2).flatten(2))


class DraftLayer(nn.Module):
    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.self_attn = BlockAttention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.eps)
        self.mlp = MLP(shape.hidden, shape.ffn)

    def forward(
        self, x: Tensor, positions: Tensor, context: Tensor, places: Tensor, mask: Tensor
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), positions, context, places, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


def sparse_mask(anchors: Tensor, context: int, block: int) -> Tensor:
    """[batch, 1, blocks * block, context + blocks * block], true where a query may look.

    anchors [batch, blocks]: a block sees the context before its anchor, and itself.
    """
    blocks = anchors.shape[1]
    before = torch.arange(context, device=anchors.device) < anchors[..., None]
    owner = torch.arange(blocks, device=anchors.device).repeat_interleave(block)
    same = (owner[:, None] == owner).expand(len(anchors), -1, -1)
    return torch.cat([before.repeat_interleave(block, 1), same], -1)[:, None]


class Drafter(nn.Module):
    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(len(shape.target_layer_ids) * shape.hidden, shape.hidden, bias=False)
        self.hidden_norm = RMSNorm(shape.hidden, shape.eps)
        self.layers = nn.ModuleList(DraftLayer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden, shape.eps)
        residual = 0.02 / math.sqrt(2 * shape.layers)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                out = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=residual if out else 0.02)

    def forward(
        self, features: Tensor, roots: Tensor, anchors: Tensor, embed: nn.Embedding
    ) -> Tensor:
        """Hidden states of the masked positions [batch, blocks, block - 1, hidden].

        features [batch, context, layers * hidden] of the committed tokens from position 0;
        roots, anchors [batch, blocks]: each block's first token and its position.
        """
        block = self.shape.block_size
        batch, blocks = anchors.shape
        ids = roots[..., None].repeat(1, 1, block)
        ids[..., 1:] = MASK
        x = embed(ids.flatten(1))
        positions = (anchors[..., None] + torch.arange(block, device=anchors.device)).flatten(1)
        context = self.hidden_norm(self.fc(features))
        places = torch.arange(features.shape[1], device=anchors.device).expand(batch, -1)
        mask = sparse_mask(anchors, features.shape[1], block)
        for layer in self.layers:
            x = layer(x, positions, context, places, mask)
        return self.norm(x).unflatten(1, (blocks, block))[:, :, 1:]
