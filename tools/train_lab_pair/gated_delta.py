"""The gated delta rule, step by step and in chunks.

State S [key dim, value dim] per head; for each token (Gated DeltaNet, arXiv 2412.06464):

    S <- exp(g) S;   S <- S + k (beta (v - S^T k))^T;   o = S^T q / sqrt(key dim)

Shapes: q, k [batch, time, heads, key dim]; v [batch, time, heads, value dim];
g (log decay, <= 0) and beta [batch, time, heads]; all float32. q and k come normalised.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def recurrent(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Token by token from `state` [batch, heads, key dim, value dim]: (outputs, last state)."""
    scale = q.shape[-1] ** -0.5
    outputs = []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[..., None, None]
        recalled = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        change = beta[:, t, :, None] * (v[:, t] - recalled)
        state = state + k[:, t, :, :, None] * change[..., None, :]
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t] * scale))
    return torch.stack(outputs, 1), state


def chunked(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, *, chunk: int = 32
) -> tuple[Tensor, Tensor]:
    """The same from a zero state, `chunk` tokens at a time: matrix products, for training.

    Inside a chunk the changes depend on each other only backwards in time, so one triangular
    solve yields them all (the WY form of DeltaNet, arXiv 2406.06484).
    """
    batch, time, heads, key_dim = q.shape
    pad = -time % chunk
    scale = key_dim**-0.5

    def cut(x: Tensor) -> Tensor:  # [batch, heads, chunks, chunk, ...]
        x = functional.pad(x, (0, 0) * (x.ndim - 2) + (0, pad))
        return x.unflatten(1, (-1, chunk)).movedim(3, 1)

    q, k, v, g, beta = (cut(x) for x in (q * scale, k, v, g, beta))
    lower = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    # the running sum of g; `cumsum` has no deterministic kernel on CUDA
    total = torch.where(lower, g[..., None, :], 0.0).sum(-1)
    # exp of the masked difference: the upper half would overflow
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~lower, -torch.inf).exp()
    mixing = (k @ k.mT) * decay * beta[..., None]
    weighted = torch.cat([v, k * total.exp()[..., None]], -1) * beta[..., None]
    # unit diagonal: the solver reads only what is strictly below it
    solved = torch.linalg.solve_triangular(mixing, weighted, upper=False, unitriangular=True)
    values, keys = solved.split([v.shape[-1], key_dim], -1)
    within = (q @ k.mT) * decay
    q_decayed = q * total.exp()[..., None]
    k_left = k * (total[..., -1:] - total).exp()[..., None]
    whole = total[..., -1].exp()[..., None, None]

    state = q.new_zeros(batch, heads, key_dim, v.shape[-1])
    outputs = []
    # unbind, not indexing: its backward writes each gradient once
    parts = (values, keys, q_decayed, within, k_left, whole)
    for value, key, query, mix, left, fade in zip(*(x.unbind(2) for x in parts), strict=True):
        change = value - key @ state
        outputs.append(query @ state + mix @ change)
        state = state * fade + left.mT @ change
    out = torch.cat(outputs, 2)[:, :, :time]
    return out.transpose(1, 2), state
