"""The DFlash drafter (arXiv 2602.06036): one pass gives a distribution for each next position.

Follows sglang/srt/models/dflash.py and speculative/dflash_worker_v2.py: a Qwen3 stack whose keys
and values are, besides the block's own, the projected hidden states of a few target layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..errors import DdtreeError
from .arrays import Floats
from .attention import KeyValues, attend
from .checkpoint import CONFIG, Checkpoint
from .layers import Mlp, Rotary, linear, rms_norm
from .target import Target

ARCHITECTURE = "DFlashDraftModel"
# Where config.json keeps what is DFlash's own; block_size and others may also stand beside it
# (`parse_dflash_draft_config`).
_DFLASH = "dflash_config"


@dataclass(frozen=True, slots=True)
class DraftLayer:
    input_norm: Floats
    query: Floats
    key_value: Floats
    query_norm: Floats
    key_norm: Floats
    output: Floats
    post_norm: Floats
    mlp: Mlp
    window: int | None
    """How many keys a sliding-window layer sees, the query's own included; None is all."""
    causal: bool


class Drafter:
    """Weights and shapes; the context of a sequence is a list of KeyValues, one a layer."""

    def __init__(self, checkpoint: Checkpoint, target: Target) -> None:
        """Takes the weights of a checkpoint made for `target`; DdtreeError where they differ."""
        checkpoint.require("hidden_act", "silu", default="silu")
        checkpoint.require("attention_bias", False, default=False)
        # Published drafters come with and without the prefix; SGLang reads both.
        names = {name.removeprefix("model."): held for name, held in checkpoint.tensors.items()}
        checkpoint = replace(checkpoint, tensors=names)
        _require_same(checkpoint, "hidden_size", target.hidden_size)
        _require_same(checkpoint, "vocab_size", target.vocab_size)
        _require_same(checkpoint, "num_target_layers", len(target.layers))
        self.target = target
        self.eps = checkpoint.number("rms_norm_eps", 1e-6)
        self.heads, self.key_heads = checkpoint.heads("num_attention_heads", "num_key_value_heads")
        self.head_dim = checkpoint.integer("head_dim", target.hidden_size // self.heads)
        self.rotary_theta = checkpoint.number("rope_theta", 10000.0, within="rope_parameters")
        self.block_size = _block_size(checkpoint)
        self.mask_token = _mask_token(checkpoint, target.vocab_size)
        self.feature_layers = _feature_layers(checkpoint, len(target.layers))
        width = target.hidden_size
        feature_width = len(self.feature_layers) * width
        self.fc = linear(checkpoint.tensor("fc.weight", width, feature_width))
        self.hidden_norm = checkpoint.tensor("hidden_norm.weight", width)
        self.norm = checkpoint.tensor("norm.weight", width)
        self.layers = [
            self._load_layer(checkpoint, index)
            for index in range(checkpoint.integer("num_hidden_layers"))
        ]

    def initial_context(self) -> list[KeyValues]:
        return [KeyValues(self.key_heads, self.head_dim) for _ in self.layers]

    def extend(self, context: list[KeyValues], features: Floats) -> None:
        """Appends the target features [N, F * hidden] of N newly committed tokens.

        Each layer's own k and v projections see the same normed projection; keys are normed and
        rotated at the position of their token (`_append_target_hidden_sequential`).
        """
        hidden = rms_norm(features @ self.fc, self.hidden_norm, self.eps)
        count = len(hidden)
        start = context[0].length
        rotary = self._rotary(start, count)
        for layer, cache in zip(self.layers, context, strict=True):
            cache.write(*self._keys_values(layer, hidden, rotary))
            cache.keep(np.arange(count))

    def draft(self, context: list[KeyValues], root: int) -> Floats:
        """Logits of the positions after `root`, [block_size - 1, vocabulary].

        The block is the last committed token and block_size - 1 masks. `root` is not yet in the
        context: its features exist only once the target has verified it.
        """
        block = np.full(self.block_size, self.mask_token, np.intp)
        block[0] = root
        hidden = self.target.embedding[block]
        start = context[0].length
        rotary = self._rotary(start, self.block_size)
        for layer, cache in zip(self.layers, context, strict=True):
            normed = rms_norm(hidden, layer.input_norm, self.eps)
            query = (normed @ layer.query).reshape(self.block_size, self.heads, self.head_dim)
            query = rotary.rotate(rms_norm(query, layer.query_norm, self.eps))
            # Written behind the context as scratch: the block's own rows are never kept.
            keys, values = cache.write(*self._keys_values(layer, normed, rotary))
            bias = _block_bias(layer, start, self.block_size)
            hidden = hidden + attend(query, keys, values, bias) @ layer.output
            hidden = hidden + layer.mlp(rms_norm(hidden, layer.post_norm, self.eps))
        return self.target.logits(rms_norm(hidden[1:], self.norm, self.eps))

    def _keys_values(self, layer: DraftLayer, x: Floats, rotary: Rotary) -> tuple[Floats, Floats]:
        shape = (len(x), 2, self.key_heads, self.head_dim)
        both = (x @ layer.key_value).reshape(shape)
        return rotary.rotate(rms_norm(both[:, 0], layer.key_norm, self.eps)), both[:, 1]

    def _rotary(self, start: int, count: int) -> Rotary:
        return Rotary.at(np.arange(start, start + count), self.head_dim, self.rotary_theta)

    def _load_layer(self, checkpoint: Checkpoint, index: int) -> DraftLayer:
        prefix, width = f"layers.{index}", self.target.hidden_size
        rows, key_rows = self.heads * self.head_dim, self.key_heads * self.head_dim
        key = checkpoint.tensor(f"{prefix}.self_attn.k_proj.weight", key_rows, width)
        value = checkpoint.tensor(f"{prefix}.self_attn.v_proj.weight", key_rows, width)
        window, causal = _visibility(checkpoint, index)
        return DraftLayer(
            input_norm=checkpoint.tensor(f"{prefix}.input_layernorm.weight", width),
            query=linear(checkpoint.tensor(f"{prefix}.self_attn.q_proj.weight", rows, width)),
            key_value=linear(key, value),
            query_norm=checkpoint.tensor(f"{prefix}.self_attn.q_norm.weight", self.head_dim),
            key_norm=checkpoint.tensor(f"{prefix}.self_attn.k_norm.weight", self.head_dim),
            output=linear(checkpoint.tensor(f"{prefix}.self_attn.o_proj.weight", width, rows)),
            post_norm=checkpoint.tensor(f"{prefix}.post_attention_layernorm.weight", width),
            mlp=Mlp.load(
                checkpoint, f"{prefix}.mlp", width, checkpoint.integer("intermediate_size")
            ),
            window=window,
            causal=causal,
        )


def _block_bias(layer: DraftLayer, start: int, count: int) -> Floats | None:
    """What the block's rows may not see, [count, start + count]; None where they see everything."""
    if not layer.causal:
        return None
    queries = np.arange(start, start + count)[:, None]
    keys = np.arange(start + count)
    visible = keys <= queries
    if layer.window is not None:
        visible &= keys > queries - layer.window
    return np.where(visible, np.float32(0), np.float32(-np.inf))


def _visibility(checkpoint: Checkpoint, index: int) -> tuple[int | None, bool]:
    """Window and causality of a layer (`_get_dflash_layer_attention_params`).

    A full layer sees in both directions unless the config says `is_causal`; a sliding one is always
    causal.
    """
    kinds = checkpoint.config.get("layer_types")
    if kinds is None:
        return None, False
    kind = kinds[index] if isinstance(kinds, list) and index < len(kinds) else None
    if kind == "full_attention":
        return None, bool(checkpoint.config.get("is_causal", False))
    if kind == "sliding_attention":
        return checkpoint.integer("sliding_window"), True
    raise checkpoint.invalid(
        f"layer_types[{index}]", kind, '"full_attention" or "sliding_attention"'
    )


def _require_same(checkpoint: Checkpoint, key: str, expected: int) -> None:
    value = checkpoint.integer(key)
    if value != expected:
        raise DdtreeError(
            f"{key} is {value}, the target's is {expected}",
            where=str(checkpoint.directory / CONFIG),
            mend="use the drafter that was trained for this target",
        )


def _block_size(checkpoint: Checkpoint) -> int:
    value = checkpoint.setting("block_size", 16, within=_DFLASH)
    if isinstance(value, bool) or not isinstance(value, int) or value < 2:
        raise checkpoint.invalid("block_size", value, "an integer of at least 2")
    return value


def _mask_token(checkpoint: Checkpoint, vocab_size: int) -> int:
    value = checkpoint.setting("mask_token_id", within=_DFLASH)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocab_size:
        raise checkpoint.invalid(
            "dflash_config.mask_token_id", value, f"a token id below {vocab_size}"
        )
    return value


def _feature_layers(checkpoint: Checkpoint, target_layers: int) -> tuple[int, ...]:
    """The target layers whose outputs the drafter reads, counted from 0."""
    ids = checkpoint.setting("target_layer_ids", within=_DFLASH)
    if (
        not isinstance(ids, list)
        or not ids
        or not all(isinstance(i, int) and 0 <= i < target_layers for i in ids)
    ):
        raise checkpoint.invalid(
            "dflash_config.target_layer_ids", ids, f"a list of layers below {target_layers}"
        )
    return tuple(ids)
