"""The gated DeltaNet layer over a tree of nodes.

The layer keeps for each head a matrix S (key x value). A node n with parent p turns its parent's
state into its own (transformers `torch_recurrent_gated_delta_rule`; the parent in place of the
previous token as in SGLang's `fused_sigmoid_gating_delta_rule_update` with
`retrieve_parent_token`):

    S[n] = g[n] S[p] + k[n] u[n]^T        u[n] = beta[n] (v[n] - g[n] S[p]^T k[n])
    output[n] = S[n]^T q[n]

Followed node by node that is one small step for each depth. Unrolled along the path from the
committed state S0, with G[n] the product of all g from the root to n,

    S[n] = G[n] S0 + sum over a on the path of n of (G[n] / G[a]) k[a] u[a]^T

so the u of all nodes solve one triangular system whose zero pattern is the ancestors' mask: the
chunked form (`torch_chunk_gated_delta_rule`, arXiv 2412.06464) with "earlier in the chunk" replaced
by "ancestor". No state of a node that is not committed is ever formed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .ancestry import Ancestry
from .arrays import Floats
from .checkpoint import Checkpoint
from .layers import linear, rms_norm, sigmoid, silu

_L2_EPS = np.float32(1e-6)


@dataclass(frozen=True, slots=True)
class DeltaState:
    """What a layer carries from one committed token to the next."""

    window: Floats
    """[W - 1, C]: the last input columns of the convolution, oldest first."""
    memory: Floats
    """[H, K, V]: the recurrent state S of each value head."""


@dataclass(frozen=True, slots=True)
class DeltaTrace:
    """What a pass leaves behind so that any one of its nodes can be committed."""

    window: Floats
    """[N, W - 1, C]: each node's convolution window, its own column last."""
    keys: Floats
    """[H, N, K]"""
    updates: Floats
    """[H, N, V]: the u of each node."""
    log_decay: Floats
    """[H, N]: log G, summed from the root down to the node."""


def causal_conv(
    columns: Floats, window: Floats, weight: Floats, ancestry: Ancestry
) -> tuple[Floats, Floats]:
    """Depthwise convolution over each node's own ancestors, then SiLU.

    `columns` [N, C], `window` [W - 1, C], `weight` [W, C]. Returns the output [N, C] and each
    node's next window [N, W - 1, C]. transformers `torch_causal_conv1d_update`.
    """
    gathered = np.concatenate([window, columns])[ancestry.window_rows(len(weight))]
    return silu((gathered * weight).sum(axis=1)), gathered[:, 1:]


def delta_rule(
    query: Floats,
    key: Floats,
    value: Floats,
    log_gate: Floats,
    beta: Floats,
    memory: Floats,
    ancestry: Ancestry,
) -> tuple[Floats, Floats, Floats]:
    """The gated delta rule for all nodes at once, each from its parent's state.

    `query` and `key` [H, N, K] (normalised, query scaled), `value` [H, N, V], `log_gate` and `beta`
    [H, N], `memory` S0 [H, K, V]. Returns the output [H, N, V], the updates u [H, N, V] and log G
    [H, N].
    """
    log_decay = log_gate @ ancestry.on_path.T.astype(np.float32)
    # exp(-inf) = 0 off the path; on it the exponent is never positive.
    decay = np.exp(log_decay[:, :, None] - log_decay[:, None, :] + ancestry.bias)
    from_start = np.exp(log_decay)[:, :, None]
    key_t = key.transpose(0, 2, 1)

    system = beta[:, :, None] * decay * (key @ key_t)
    diagonal = np.arange(system.shape[1])
    system[:, diagonal, diagonal] = 1
    remembered = from_start * (key @ memory)
    updates = np.linalg.solve(system, beta[:, :, None] * (value - remembered))

    output = from_start * (query @ memory) + (decay * (query @ key_t)) @ updates
    return output, updates, log_decay


def state_after(trace: DeltaTrace, state: DeltaState, node: int, ancestry: Ancestry) -> DeltaState:
    """The state to commit when `node` is the accepted leaf: its own window and its own S."""
    path = ancestry.path_to(node)
    log_decay = trace.log_decay[:, node, None] - trace.log_decay[:, path]
    keys = trace.keys[:, path] * np.exp(log_decay)[:, :, None]
    memory = np.exp(trace.log_decay[:, node])[:, None, None] * state.memory
    memory += keys.transpose(0, 2, 1) @ trace.updates[:, path]
    return DeltaState(trace.window[node], memory)


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """transformers `Qwen3_5GatedDeltaNet`. `project` holds in_proj_qkv, _z, _b and _a."""

    project: Floats
    conv: Floats
    output: Floats
    decay_rate: Floats
    dt_bias: Floats
    norm: Floats
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    eps: float

    @staticmethod
    def load(checkpoint: Checkpoint, prefix: str) -> GatedDeltaNet:
        hidden = checkpoint.integer("hidden_size")
        heads, key_heads = checkpoint.heads("linear_num_value_heads", "linear_num_key_heads")
        key_dim = checkpoint.integer("linear_key_head_dim")
        value_dim = checkpoint.integer("linear_value_head_dim")
        width = checkpoint.integer("linear_conv_kernel_dim")
        channels = 2 * key_heads * key_dim + heads * value_dim
        projections = [
            checkpoint.tensor(f"{prefix}.in_proj_qkv.weight", channels, hidden),
            checkpoint.tensor(f"{prefix}.in_proj_z.weight", heads * value_dim, hidden),
            checkpoint.tensor(f"{prefix}.in_proj_b.weight", heads, hidden),
            checkpoint.tensor(f"{prefix}.in_proj_a.weight", heads, hidden),
        ]
        return GatedDeltaNet(
            project=linear(*projections),
            conv=linear(checkpoint.tensor(f"{prefix}.conv1d.weight", channels, 1, width)[:, 0]),
            output=linear(
                checkpoint.tensor(f"{prefix}.out_proj.weight", hidden, heads * value_dim)
            ),
            decay_rate=np.exp(checkpoint.tensor(f"{prefix}.A_log", heads)),
            dt_bias=checkpoint.tensor(f"{prefix}.dt_bias", heads),
            norm=checkpoint.tensor(f"{prefix}.norm.weight", value_dim),
            key_heads=key_heads,
            value_heads=heads,
            key_dim=key_dim,
            value_dim=value_dim,
            eps=checkpoint.number("rms_norm_eps", 1e-6),
        )

    def initial_state(self) -> DeltaState:
        """The state before the first token: nothing seen."""
        width, channels = self.conv.shape
        memory = np.zeros((self.value_heads, self.key_dim, self.value_dim), np.float32)
        return DeltaState(np.zeros((width - 1, channels), np.float32), memory)

    def forward(
        self, x: Floats, state: DeltaState, ancestry: Ancestry
    ) -> tuple[Floats, DeltaTrace]:
        """[N, hidden] to [N, hidden], each node continuing its parent; `state` is not changed."""
        count, heads = len(x), self.value_heads
        channels = self.conv.shape[1]
        projected = x @ self.project
        gate, beta, step = (
            projected[:, channels : -2 * heads],
            projected[:, -2 * heads : -heads],
            projected[:, -heads:],
        )
        mixed, window = causal_conv(projected[:, :channels], state.window, self.conv, ancestry)
        keys_end = 2 * self.key_heads * self.key_dim
        query, key = mixed[:, :keys_end].reshape(count, 2, self.key_heads, -1).transpose(1, 2, 0, 3)
        value = mixed[:, keys_end:].reshape(count, heads, self.value_dim).transpose(1, 0, 2)
        group = heads // self.key_heads
        key = np.repeat(_l2_norm(key), group, axis=0)
        query = np.repeat(_l2_norm(query) * np.float32(self.key_dim**-0.5), group, axis=0)

        log_gate = -self.decay_rate * np.logaddexp(step + self.dt_bias, np.float32(0))
        out, updates, log_decay = delta_rule(
            query, key, value, log_gate.T, sigmoid(beta).T, state.memory, ancestry
        )
        # Norm before gate (`Qwen3_5RMSNormGated`); this weight is not zero-centred.
        out = rms_norm(out.transpose(1, 0, 2), self.norm, self.eps)
        out *= silu(gate.reshape(count, heads, self.value_dim))
        trace = DeltaTrace(window, key, updates, log_decay)
        return out.reshape(count, -1) @ self.output, trace


def _l2_norm(x: Floats) -> Floats:
    size: Floats = np.sqrt(np.vecdot(x, x)[..., None] + _L2_EPS)
    return x / size
