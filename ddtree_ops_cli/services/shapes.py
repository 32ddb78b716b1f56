"""What the config.json of a target and of its drafter say of their memory. Pure.

Read as SGLang 0.5.17 reads them: configs/model_config.py, configs/qwen3_next.py,
configs/mamba_utils.py and speculative/dflash_utils.py under sglang/srt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import DdtreeError

MIB = 1 << 20
GIB = 1 << 30

# Recurrent families whose state SGLang keeps in other shapes than gated DeltaNet's.
_OTHER_RECURRENCES = (
    "linear_attn_config", "mamba_d_state", "ssm_state_size", "hybrid_override_pattern",
    "conv_L_cache",
)  # fmt: skip


class Uncounted(DdtreeError):
    """A model of a kind whose memory this version does not know to compute."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The gated DeltaNet layers of a target."""

    layers: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int

    def state_bytes(self, ssm_itemsize: int) -> int:
        """One state of all layers: what a request keeps, and what each verified node keeps.

        `BaseLinearStateParams.mamba_cache_per_req`: the window of the convolution in bfloat16, and
        a key_dim x value_dim matrix per value head.
        """
        channels = 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
        conv = channels * (self.conv_kernel - 1) * 2
        ssm = self.value_heads * self.value_dim * self.key_dim * ssm_itemsize
        return self.layers * (conv + ssm)


@dataclass(frozen=True, slots=True)
class Attention:
    """The layers that keep keys and values."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int

    def bytes_per_token(self, itemsize: int) -> int:
        """Keys and values of one token in all layers (pool_configurator._compute_cell_size)."""
        return self.layers * self.kv_heads * (self.head_dim + self.value_dim) * itemsize


@dataclass(frozen=True, slots=True)
class TargetShape:
    architecture: str
    vocabulary: int
    hidden: int
    layers: int
    attention: Attention
    recurrence: Recurrence | None
    ssm_dtype: str
    vision: tuple[int, int] | None
    """Layers and hidden size of the image encoder, as adjust_mem_fraction_for_vlm reads them."""


@dataclass(frozen=True, slots=True)
class DrafterShape:
    vocabulary: int
    hidden: int
    attention: Attention
    block_size: int | None
    target_layers: int | None
    """How many layers its target has, where it says so."""
    target_layer_ids: tuple[int, ...]
    parameters: int
    """Of the layers, the projection of the target's features and the norms (models/dflash.py)."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The models of a service; `drafter` is None where none is loaded."""

    target: TargetShape
    target_bytes: int
    """Of the weights that are loaded, as they lie in memory."""
    drafter: DrafterShape | None
    drafter_bytes: int


def target_shape(config: Mapping[str, Any], *, where: str) -> TargetShape:
    """Raises DdtreeError for a config.json without a needed value, Uncounted for other families."""
    text = _text(config)
    if "kv_lora_rank" in text:
        raise Uncounted("memory is not computed for multi-head latent attention", where=where)
    if other := next((key for key in _OTHER_RECURRENCES if text.get(key)), None):
        raise Uncounted(
            f"memory is not computed for recurrent layers of this kind ({other})", where=where
        )
    layers = _integer(text, "num_hidden_layers", where)
    recurrence = None
    with_kv = layers
    if "linear_num_value_heads" in text:
        # SGLang reads the interval and not layer_types (qwen3_next.py, layers_block_type).
        with_kv = layers // _integer(text, "full_attention_interval", where, 4)
        recurrence = Recurrence(
            layers=layers - with_kv,
            key_heads=_integer(text, "linear_num_key_heads", where),
            value_heads=_integer(text, "linear_num_value_heads", where),
            key_dim=_integer(text, "linear_key_head_dim", where),
            value_dim=_integer(text, "linear_value_head_dim", where),
            conv_kernel=_integer(text, "linear_conv_kernel_dim", where),
        )
    named = config.get("architectures")
    return TargetShape(
        architecture=str(named[0]) if isinstance(named, list) and named else "",
        vocabulary=_integer(text, "vocab_size", where),
        hidden=_integer(text, "hidden_size", where),
        layers=layers,
        attention=_attention(text, with_kv, where),
        recurrence=recurrence,
        ssm_dtype=str(text.get("mamba_ssm_dtype") or "float32"),
        vision=_vision(config),
    )


def drafter_shape(config: Mapping[str, Any], *, where: str) -> DrafterShape:
    """Raises DdtreeError for what is no config.json of a DFlash drafter."""
    text = _text(config)
    own = config.get("dflash_config")
    dflash = own if isinstance(own, dict) else {}
    layers = _integer(text, "num_hidden_layers", where)
    attention = _attention(text, layers, where)
    ids = dflash.get("target_layer_ids", config.get("target_layer_ids"))
    if not (isinstance(ids, list) and ids and all(_is_index(one) for one in ids)):
        raise DdtreeError(
            f"dflash_config.target_layer_ids is {json.dumps(ids)}, a drafter lists layers there",
            where=where,
            mend="name a DFlash drafter in the model profile",
        )
    hidden = _integer(text, "hidden_size", where)
    return DrafterShape(
        vocabulary=_integer(text, "vocab_size", where),
        hidden=hidden,
        attention=attention,
        block_size=_optional(dflash.get("block_size", config.get("block_size"))),
        target_layers=_optional(dflash.get("num_target_layers", config.get("num_target_layers"))),
        target_layer_ids=tuple(ids),
        parameters=_drafter_parameters(
            attention, hidden, _integer(text, "intermediate_size", where), len(ids)
        ),
    )


def _drafter_parameters(attention: Attention, hidden: int, inner: int, features: int) -> int:
    queries = attention.heads * attention.head_dim
    values = attention.kv_heads * attention.head_dim
    layer = 2 * hidden * (queries + values) + 3 * hidden * inner + 2 * hidden
    layer += 2 * attention.head_dim
    return features * hidden * hidden + 2 * hidden + attention.layers * layer


def _attention(text: Mapping[str, Any], layers: int, where: str) -> Attention:
    heads = _integer(text, "num_attention_heads", where)
    hidden = _integer(text, "hidden_size", where)
    head_dim = _integer(text, "head_dim", where, hidden // heads)
    return Attention(
        layers=layers,
        heads=heads,
        kv_heads=_integer(text, "num_key_value_heads", where, heads),
        head_dim=head_dim,
        value_dim=_integer(text, "v_head_dim", where, head_dim),
    )


def _vision(config: Mapping[str, Any]) -> tuple[int, int] | None:
    vision = config.get("vision_config")
    if not isinstance(vision, dict):
        return None
    return (
        _optional(vision.get("num_hidden_layers")) or 24,
        _optional(vision.get("hidden_size")) or 1024,
    )


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a multimodal config.json, or all of it."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def _integer(text: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = text.get(key)
    found = _optional(default if value is None else value)
    if found is None:
        told = "is missing" if value is None else f"is {json.dumps(value)}"
        raise DdtreeError(
            f"{key} {told}, expected a positive whole number",
            where=where,
            mend="copy the checkpoint again, whole",
        )
    return found


def _optional(value: object) -> int | None:
    """A positive whole number, or None for anything else."""
    return value if type(value) is int and value > 0 else None


def _is_index(value: object) -> bool:
    return type(value) is int and value >= 0
