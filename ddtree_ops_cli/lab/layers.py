"""What the layers of the target and the drafter have in common.

Names and formulas follow transformers models/qwen3_5/modeling_qwen3_5.py (target) and
sglang/srt/models/dflash.py (drafter, a Qwen3 stack).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import Floats, Indices
from .checkpoint import Checkpoint


def rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    """Root-mean-square norm over the last axis, scaled by `weight`."""
    mean_square = np.vecdot(x, x)[..., None] / np.float32(x.shape[-1])
    size: Floats = np.sqrt(mean_square + np.float32(eps))
    return x / size * weight


def linear(*weights: Floats) -> Floats:
    """One matrix [in, sum of out] for `x @ it` from projections [out, in] of the same input."""
    return np.ascontiguousarray(np.concatenate(weights).T)


def zero_centred(weight: Floats) -> Floats:
    """The scale that a Qwen3.5 norm stores as its distance from one (`Qwen3_5RMSNorm`)."""
    return np.float32(1) + weight


def sigmoid(x: Floats) -> Floats:
    # Beyond -80 the result underflows anyway; the bound keeps exp from overflowing with a warning.
    return np.float32(1) / (np.float32(1) + np.exp(np.minimum(-x, np.float32(80))))


def silu(x: Floats) -> Floats:
    return x * sigmoid(x)


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotation angles of a pass: cosine and sine [N, 1, rotary_dim / 2].

    Only the first `rotary_dim` entries of a head rotate, the first half against the second
    (`apply_rotary_pos_emb`, NeoX style).
    """

    cosine: Floats
    sine: Floats

    @staticmethod
    def at(positions: Indices, rotary_dim: int, theta: float) -> Rotary:
        """The angles of `positions` [N]."""
        exponents = np.arange(0, rotary_dim, 2, dtype=np.float32) / np.float32(rotary_dim)
        frequencies = np.float32(1) / np.power(np.float32(theta), exponents)
        angles = positions.astype(np.float32)[:, None, None] * frequencies
        return Rotary(np.cos(angles), np.sin(angles))

    def rotate(self, heads: Floats) -> Floats:
        """`heads` [N, H, D], rotated by the position of its row."""
        half = self.cosine.shape[-1]
        first, second = heads[..., :half], heads[..., half : 2 * half]
        rotated = heads.copy()
        rotated[..., :half] = first * self.cosine - second * self.sine
        rotated[..., half : 2 * half] = second * self.cosine + first * self.sine
        return rotated


@dataclass(frozen=True, slots=True)
class Mlp:
    """SwiGLU: down(silu(gate(x)) * up(x)), with gate and up in one matrix."""

    gate_up: Floats
    down: Floats

    @staticmethod
    def load(checkpoint: Checkpoint, prefix: str, hidden: int, intermediate: int) -> Mlp:
        gate = checkpoint.tensor(f"{prefix}.gate_proj.weight", intermediate, hidden)
        up = checkpoint.tensor(f"{prefix}.up_proj.weight", intermediate, hidden)
        down = checkpoint.tensor(f"{prefix}.down_proj.weight", hidden, intermediate)
        return Mlp(linear(gate, up), linear(down))

    def __call__(self, x: Floats) -> Floats:
        both = x @ self.gate_up
        width = both.shape[-1] // 2
        out: Floats = (silu(both[:, :width]) * both[:, width:]) @ self.down
        return out
