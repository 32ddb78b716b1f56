"""Attention over committed keys and values plus the nodes of the current pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .ancestry import Ancestry
from .arrays import Floats, Indices
from .checkpoint import Checkpoint
from .layers import Rotary, linear, rms_norm, sigmoid, zero_centred

_FIRST_CAPACITY = 256


class KeyValues:
    """Keys and values of one layer [H, capacity, D]: committed rows first, then scratch rows.

    A pass writes its nodes behind the committed rows; `keep` moves the accepted ones together.
    Scratch rows that were not kept are overwritten by the next pass.
    """

    __slots__ = ("keys", "length", "values")

    def __init__(self, heads: int, head_dim: int) -> None:
        self.keys: Floats = np.empty((heads, _FIRST_CAPACITY, head_dim), np.float32)
        self.values: Floats = np.empty_like(self.keys)
        self.length = 0

    def write(self, keys: Floats, values: Floats) -> tuple[Floats, Floats]:
        """Puts `keys` and `values` [N, H, D] behind the committed rows.

        Returns views of all committed and new rows, [H, length + N, D].
        """
        end = self.length + len(keys)
        if end > self.keys.shape[1]:
            self._grow(2 * end)
        self.keys[:, self.length : end] = keys.transpose(1, 0, 2)
        self.values[:, self.length : end] = values.transpose(1, 0, 2)
        return self.keys[:, :end], self.values[:, :end]

    def keep(self, path: Indices) -> None:
        """Commits the scratch rows `path` (indices into the last pass, ascending)."""
        rows = self.length + path
        end = self.length + len(path)
        self.keys[:, self.length : end] = self.keys[:, rows]
        self.values[:, self.length : end] = self.values[:, rows]
        self.length = end

    def _grow(self, capacity: int) -> None:
        room = ((0, 0), (0, capacity - self.keys.shape[1]), (0, 0))
        self.keys = np.pad(self.keys, room)
        self.values = np.pad(self.values, room)


def attend(queries: Floats, keys: Floats, values: Floats, bias: Floats | None) -> Floats:
    """Scaled dot-product attention with grouped heads; softmax in float32.

    `queries` [N, Hq, D], `keys` and `values` [Hk, M, D] with Hq a multiple of Hk. `bias` [N, B] is
    added to the scores of the last B of the M keys; None leaves every key visible. Returns
    [N, Hq * D].
    """
    count, heads, dim = queries.shape
    key_heads, length, _ = keys.shape
    group = heads // key_heads
    # One matrix product for each key head serves its whole group of query heads.
    grouped = queries.reshape(count, key_heads, group, dim).transpose(1, 2, 0, 3)
    grouped = grouped.reshape(key_heads, group * count, dim) * np.float32(dim**-0.5)
    scores: Floats = grouped @ keys.transpose(0, 2, 1)
    if bias is not None:
        by_node = scores.reshape(key_heads, group, count, length)
        by_node[..., length - bias.shape[1] :] += bias
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    mixed = (scores @ values).reshape(key_heads, group, count, dim)
    return mixed.transpose(2, 0, 1, 3).reshape(count, heads * dim)


@dataclass(frozen=True, slots=True)
class GatedAttention:
    """Full attention of Qwen3.5: query and key norms, partial rotary, a sigmoid output gate.

    transformers `Qwen3_5Attention`. `project` holds q_proj (query and gate interleaved by head),
    k_proj and v_proj.
    """

    project: Floats
    output: Floats
    query_norm: Floats
    key_norm: Floats
    heads: int
    key_heads: int
    head_dim: int
    eps: float

    @staticmethod
    def load(checkpoint: Checkpoint, prefix: str) -> GatedAttention:
        hidden = checkpoint.integer("hidden_size")
        heads, key_heads = checkpoint.heads("num_attention_heads", "num_key_value_heads")
        dim = checkpoint.integer("head_dim")
        query_gate = checkpoint.tensor(f"{prefix}.q_proj.weight", heads * dim * 2, hidden)
        key = checkpoint.tensor(f"{prefix}.k_proj.weight", key_heads * dim, hidden)
        value = checkpoint.tensor(f"{prefix}.v_proj.weight", key_heads * dim, hidden)
        return GatedAttention(
            project=linear(query_gate, key, value),
            output=linear(checkpoint.tensor(f"{prefix}.o_proj.weight", hidden, heads * dim)),
            query_norm=zero_centred(checkpoint.tensor(f"{prefix}.q_norm.weight", dim)),
            key_norm=zero_centred(checkpoint.tensor(f"{prefix}.k_norm.weight", dim)),
            heads=heads,
            key_heads=key_heads,
            head_dim=dim,
            eps=checkpoint.number("rms_norm_eps", 1e-6),
        )

    def forward(self, x: Floats, cache: KeyValues, rotary: Rotary, ancestry: Ancestry) -> Floats:
        """[N, hidden] to [N, hidden]: each node attends to what is committed and to its path."""
        count, dim = len(x), self.head_dim
        projected = (x @ self.project).reshape(count, -1, dim)
        by_head = projected[:, : 2 * self.heads].reshape(count, self.heads, 2 * dim)
        query = rotary.rotate(rms_norm(by_head[..., :dim], self.query_norm, self.eps))
        gate = by_head[..., dim:].reshape(count, self.heads * dim)
        key, value = projected[:, 2 * self.heads :].reshape(count, 2, -1, dim).swapaxes(0, 1)
        key = rotary.rotate(rms_norm(key, self.key_norm, self.eps))
        keys, values = cache.write(key, value)
        mixed = attend(query, keys, values, ancestry.bias)
        mixed *= sigmoid(gate)
        return mixed @ self.output
