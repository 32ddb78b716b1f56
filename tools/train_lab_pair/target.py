"""The target in PyTorch: Qwen3.5's text architecture, with the parameter names of its checkpoints.

One forward serves training (whole sequences, chunked recurrence) and one serves generation (one
token for every row, states in a cache). Follows transformers' `modeling_qwen3_5.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import gated_delta
from .shapes import TargetShape


class RMSNorm(nn.Module):
    """Root-mean-square norm; `offset` 1 for weights that are stored as a difference from one."""

    def __init__(self, size: int, eps: float, *, offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), 1.0 - offset))
        self.eps = eps
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x.float(), x.shape[-1:], self.weight + self.offset, self.eps).to(
            x.dtype
        )


def rotate(x: Tensor, positions: Tensor, rotary_dim: int, theta: float) -> Tensor:
    """Rotary embedding of the first `rotary_dim` of x [batch, time, heads, dim], halves paired."""
    half = rotary_dim // 2
    frequency = theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = positions[..., None, None].float() * frequency
    sin, cos = angle.sin(), angle.cos()
    a, b, rest = x.float().split([half, half, x.shape[-1] - rotary_dim], -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1).to(x.dtype)


class MLP(nn.Module):
    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, ffn, bias=False)
        self.up_proj = nn.Linear(hidden, ffn, bias=False)
        self.down_proj = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


@dataclass(slots=True)
class AttentionCache:
    keys: Tensor  # [batch, context, kv heads, head dim]
    values: Tensor


@dataclass(slots=True)
class RecurrentCache:
    window: Tensor  # [batch, kernel - 1, channels]: the convolution's last inputs
    state: Tensor  # [batch, heads, key dim, value dim]


Cache = AttentionCache | RecurrentCache


class GatedAttention(nn.Module):
    """Causal attention whose output is gated by a second half of the query projection."""

    def __init__(self, shape: TargetShape) -> None:
        super().__init__()
        self.shape = shape
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, 2 * width, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv_width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden, bias=False)
        self.q_norm = RMSNorm(shape.head_dim, shape.eps, offset=1.0)
        self.k_norm = RMSNorm(shape.head_dim, shape.eps, offset=1.0)

    def forward(self, x: Tensor, positions: Tensor, cache: AttentionCache | None) -> Tensor:
        shape = self.shape
        q, gate = self.q_proj(x).unflatten(-1, (shape.heads, 2 * shape.head_dim)).chunk(2, -1)
        k = self.k_proj(x).unflatten(-1, (shape.kv_heads, shape.head_dim))
        v = self.v_proj(x).unflatten(-1, (shape.kv_heads, shape.head_dim))
        q = rotate(self.q_norm(q), positions, shape.rotary_dim, shape.rope_theta)
        k = rotate(self.k_norm(k), positions, shape.rotary_dim, shape.rope_theta)
        mask = None
        if cache is not None:
            rows = torch.arange(len(x), device=x.device)
            cache.keys[rows, positions[:, 0]] = k[:, 0].to(cache.keys.dtype)
            cache.values[rows, positions[:, 0]] = v[:, 0].to(cache.values.dtype)
            k, v = cache.keys.to(q.dtype), cache.values.to(q.dtype)
            reach = torch.arange(k.shape[1], device=x.device)
            mask = (reach <= positions)[:, None, None]
        repeat = shape.heads // shape.kv_heads
        k, v = (y.repeat_interleave(repeat, 2).transpose(1, 2) for y in (k, v))
        out = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k, v.to(k.dtype), attn_mask=mask, is_causal=cache is None
        )
        out = out.transpose(1, 2) * gate.sigmoid()
        return self.o_proj(out.flatten(2))


class GatedDeltaNet(nn.Module):
    """Linear attention with a recurrent state, behind a short causal convolution."""

    def __init__(self, shape: TargetShape) -> None:
        super().__init__()
        self.shape = shape
        self.key_width = shape.gdn_key_heads * shape.gdn_head_dim
        self.value_width = shape.gdn_value_heads * shape.gdn_head_dim
        channels = 2 * self.key_width + self.value_width
        self.in_proj_qkv = nn.Linear(shape.hidden, channels, bias=False)
        self.in_proj_z = nn.Linear(shape.hidden, self.value_width, bias=False)
        self.in_proj_b = nn.Linear(shape.hidden, shape.gdn_value_heads, bias=False)
        self.in_proj_a = nn.Linear(shape.hidden, shape.gdn_value_heads, bias=False)
        self.conv1d = nn.Conv1d(channels, channels, shape.conv_kernel, groups=channels, bias=False)
        self.dt_bias = nn.Parameter(torch.zeros(shape.gdn_value_heads))
        self.A_log = nn.Parameter(torch.zeros(shape.gdn_value_heads))
        self.norm = RMSNorm(shape.gdn_head_dim, shape.eps)
        self.out_proj = nn.Linear(self.value_width, shape.hidden, bias=False)

    def _convolve(self, x: Tensor) -> Tensor:
        """x [batch, kernel - 1 + time, channels] -> [batch, time, channels]."""
        taps = self.conv1d.weight[:, 0].to(x.dtype).T
        time = x.shape[1] - len(taps) + 1
        return functional.silu(sum(x[:, i : i + time] * tap for i, tap in enumerate(taps)))

    def forward(self, x: Tensor, _positions: Tensor, cache: RecurrentCache | None) -> Tensor:
        shape = self.shape
        mixed = self.in_proj_qkv(x)
        if cache is None:
            mixed = functional.pad(mixed, (0, 0, shape.conv_kernel - 1, 0))
        else:
            mixed = torch.cat([cache.window.to(mixed.dtype), mixed], 1)
            cache.window = mixed[:, 1:]
        q, k, v = (
            part.unflatten(-1, (-1, shape.gdn_head_dim)).float()
            for part in self._convolve(mixed).split(
                [self.key_width, self.key_width, self.value_width], -1
            )
        )
        repeat = shape.gdn_value_heads // shape.gdn_key_heads
        q, k = (
            (y * torch.rsqrt((y * y).sum(-1, keepdim=True) + 1e-6)).repeat_interleave(repeat, 2)
            for y in (q, k)
        )
        beta = self.in_proj_b(x).float().sigmoid()
        rate = functional.softplus(self.in_proj_a(x).float() + self.dt_bias.float())
        g = -self.A_log.float().exp() * rate
        with torch.autocast(x.device.type, enabled=False):
            if cache is None:
                out, _ = gated_delta.chunked(q, k, v, g, beta)
            else:
                out, cache.state = gated_delta.recurrent(q, k, v, g, beta, cache.state)
        z = self.in_proj_z(x).unflatten(-1, (-1, shape.gdn_head_dim))
        out = self.norm(out) * functional.silu(z.float())
        return self.out_proj(out.flatten(2).to(x.dtype))


class Layer(nn.Module):
    def __init__(self, shape: TargetShape, index: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden, shape.eps, offset=1.0)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.eps, offset=1.0)
        if shape.is_attention(index):
            self.self_attn = GatedAttention(shape)
        else:
            self.linear_attn = GatedDeltaNet(shape)
        self.mlp = MLP(shape.hidden, shape.ffn)

    def forward(self, x: Tensor, positions: Tensor, cache: Cache | None) -> Tensor:
        mixer = self.self_attn if hasattr(self, "self_attn") else self.linear_attn
        x = x + mixer(self.input_layernorm(x), positions, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, shape: TargetShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape, i) for i in range(shape.layers))
        self.norm = RMSNorm(shape.hidden, shape.eps, offset=1.0)


class Target(nn.Module):
    def __init__(self, shape: TargetShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        self.lm_head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        self._initialise()

    def _initialise(self) -> None:
        residual = 0.02 / math.sqrt(2 * self.shape.layers)
        for name, weight in self.named_parameters():
            if name.endswith("A_log"):
                nn.init.uniform_(weight, math.log(0.5), math.log(8.0))
            elif name.endswith("dt_bias"):
                # decays between a few tokens and a few hundred at the start
                nn.init.uniform_(weight, -6.0, -2.0)
            elif "conv1d" in name:
                nn.init.normal_(weight, std=0.3)
            elif weight.ndim == 2:
                out = name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=residual if out else 0.02)

    def forward(
        self, tokens: Tensor, *, keep_layers: tuple[int, ...] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """tokens [batch, time] from position 0 -> (last hidden states, kept layers' outputs).

        The kept outputs are concatenated [batch, time, len(keep_layers) * hidden]: what a DFlash
        drafter takes as context. Logits are `lm_head` of the first.
        """
        positions = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        x = self.model.embed_tokens(tokens)
        kept = []
        for i, layer in enumerate(self.model.layers):
            x = layer(x, positions, None)
            if i in keep_layers:
                kept.append(x)
        return self.model.norm(x), torch.cat(kept, -1) if kept else None

    def new_cache(self, batch: int, context: int, device: torch.device) -> list[Cache]:
        shape = self.shape
        caches: list[Cache] = []
        kv = (batch, context, shape.kv_heads, shape.head_dim)
        channels = (2 * shape.gdn_key_heads + shape.gdn_value_heads) * shape.gdn_head_dim
        state = (batch, shape.gdn_value_heads, shape.gdn_head_dim, shape.gdn_head_dim)
        for i in range(shape.layers):
            if shape.is_attention(i):
                caches.append(
                    AttentionCache(torch.zeros(kv, device=device), torch.zeros(kv, device=device))
                )
            else:
                window = torch.zeros(batch, shape.conv_kernel - 1, channels, device=device)
                caches.append(RecurrentCache(window, torch.zeros(state, device=device)))
        return caches

    def step(self, tokens: Tensor, positions: Tensor, caches: list[Cache]) -> Tensor:
        """One token for every row: tokens, positions [batch] -> logits [batch, vocab]."""
        x = self.model.embed_tokens(tokens)[:, None]
        for layer, cache in zip(self.model.layers, caches, strict=True):
            x = layer(x, positions[:, None], cache)
        return self.lm_head(self.model.norm(x[:, 0]))
