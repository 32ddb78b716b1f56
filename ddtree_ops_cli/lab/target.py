"""The target: a Qwen3.5 text hybrid of gated DeltaNet and gated attention layers.

transformers models/qwen3_5/modeling_qwen3_5.py (`Qwen3_5ForCausalLM`); tensor names as there and as
sglang/srt/models/qwen3_5_text.py reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .ancestry import Ancestry
from .arrays import Floats, Indices
from .attention import GatedAttention, KeyValues
from .checkpoint import Checkpoint
from .gated_delta import DeltaState, DeltaTrace, GatedDeltaNet, state_after
from .layers import Mlp, Rotary, linear, rms_norm, zero_centred

ARCHITECTURE = "Qwen3_5ForCausalLM"
PREFILL_CHUNK = 64


@dataclass(frozen=True, slots=True)
class Layer:
    input_norm: Floats
    mixer: GatedDeltaNet | GatedAttention
    post_norm: Floats
    mlp: Mlp


@dataclass(slots=True)
class TargetState:
    """Everything that the target remembers of the committed tokens of one sequence."""

    length: int
    layers: list[KeyValues | DeltaState]


@dataclass(frozen=True, slots=True)
class TargetPass:
    """The result of one pass over N nodes; nothing of it is committed yet."""

    ancestry: Ancestry
    hidden: Floats
    """[N, hidden], after the final norm."""
    features: Floats
    """[N, F * hidden]: the outputs of the F feature layers, concatenated."""
    traces: tuple[DeltaTrace | None, ...]
    """One for each layer; None for attention, whose rows wait in the cache."""


class Target:
    """Weights and shapes; the state of a sequence lives in TargetState."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Takes the weights of a checkpoint; DdtreeError where the lab cannot compute it."""
        checkpoint.require("hidden_act", "silu", default="silu")
        checkpoint.require("attention_bias", False, default=False)
        checkpoint.require("attn_output_gate", True, default=True)
        checkpoint.require("output_gate_type", None, "swish", "silu")
        self.vocab_size = checkpoint.integer("vocab_size")
        self.hidden_size = checkpoint.integer("hidden_size")
        self.max_positions = checkpoint.integer("max_position_embeddings")
        self.eps = checkpoint.number("rms_norm_eps", 1e-6)
        self.rotary_dim, self.rotary_theta = _rotary_parameters(checkpoint)
        self.embedding = checkpoint.tensor(
            "model.embed_tokens.weight", self.vocab_size, self.hidden_size
        )
        tied = checkpoint.config.get("tie_word_embeddings", False)
        self.head = linear(
            self.embedding
            if tied
            else checkpoint.tensor("lm_head.weight", self.vocab_size, self.hidden_size)
        )
        self.norm = zero_centred(checkpoint.tensor("model.norm.weight", self.hidden_size))
        self.layers = [_layer(checkpoint, i, kind) for i, kind in enumerate(_kinds(checkpoint))]
        self.feature_layers: tuple[int, ...] = ()

    def initial_state(self) -> TargetState:
        return TargetState(0, [_initial(layer.mixer) for layer in self.layers])

    def forward(self, state: TargetState, tokens: Indices, ancestry: Ancestry) -> TargetPass:
        """One pass over N nodes behind the committed tokens.

        Node n stands at position committed length + depth, attends to the committed tokens and to
        its ancestors, and its recurrent layers continue from its parent (arXiv 2604.12989).
        """
        positions = state.length + ancestry.depths
        rotary = Rotary.at(positions, self.rotary_dim, self.rotary_theta)
        hidden = self.embedding[tokens]
        traces: list[DeltaTrace | None] = []
        outputs: dict[int, Floats] = {}
        for index, (layer, memory) in enumerate(zip(self.layers, state.layers, strict=True)):
            normed = rms_norm(hidden, layer.input_norm, self.eps)
            if isinstance(layer.mixer, GatedDeltaNet):
                assert isinstance(memory, DeltaState)
                mixed, trace = layer.mixer.forward(normed, memory, ancestry)
                traces.append(trace)
            else:
                assert isinstance(memory, KeyValues)
                mixed = layer.mixer.forward(normed, memory, rotary, ancestry)
                traces.append(None)
            hidden = hidden + mixed
            hidden = hidden + layer.mlp(rms_norm(hidden, layer.post_norm, self.eps))
            if index in self.feature_layers:
                outputs[index] = hidden
        # DFlash counts layers from 0 and takes the hidden states AFTER each (SGLang hooks the input
        # of layer id + 1: `set_dflash_layers_to_capture`).
        chosen = [outputs[index] for index in self.feature_layers]
        features = np.concatenate(chosen, axis=-1) if chosen else hidden[:, :0]
        return TargetPass(ancestry, rms_norm(hidden, self.norm, self.eps), features, tuple(traces))

    def logits(self, hidden: Floats) -> Floats:
        """[N, hidden] to [N, vocabulary], through the head that the drafter shares."""
        return hidden @ self.head

    def commit(self, state: TargetState, done: TargetPass, path: Indices) -> None:
        """Makes the nodes of `path`, root to accepted leaf, part of the sequence.

        Attention keeps the path's rows; recurrent layers take the state of the leaf node.
        """
        leaf = int(path[-1])
        for index, (memory, trace) in enumerate(zip(state.layers, done.traces, strict=True)):
            if isinstance(memory, KeyValues):
                memory.keep(path)
            else:
                assert trace is not None
                state.layers[index] = state_after(trace, memory, leaf, done.ancestry)
        state.length += len(path)

    def prefill(self, state: TargetState, tokens: Indices) -> tuple[Floats, Floats]:
        """Commits `tokens`; returns the logits after the last [vocabulary] and all features."""
        features = []
        for start in range(0, len(tokens), PREFILL_CHUNK):
            chunk = tokens[start : start + PREFILL_CHUNK]
            done = self.forward(state, chunk, Ancestry.chain(len(chunk)))
            self.commit(state, done, np.arange(len(chunk)))
            features.append(done.features)
        return self.logits(done.hidden[-1]), np.concatenate(features)


def _initial(mixer: GatedDeltaNet | GatedAttention) -> DeltaState | KeyValues:
    if isinstance(mixer, GatedDeltaNet):
        return mixer.initial_state()
    return KeyValues(mixer.key_heads, mixer.head_dim)


def _layer(checkpoint: Checkpoint, index: int, kind: str) -> Layer:
    prefix, hidden = f"model.layers.{index}", checkpoint.integer("hidden_size")
    mixer: GatedDeltaNet | GatedAttention
    if kind == "linear_attention":
        mixer = GatedDeltaNet.load(checkpoint, f"{prefix}.linear_attn")
    else:
        mixer = GatedAttention.load(checkpoint, f"{prefix}.self_attn")
    before = checkpoint.tensor(f"{prefix}.input_layernorm.weight", hidden)
    after = checkpoint.tensor(f"{prefix}.post_attention_layernorm.weight", hidden)
    mlp = Mlp.load(checkpoint, f"{prefix}.mlp", hidden, checkpoint.integer("intermediate_size"))
    return Layer(zero_centred(before), mixer, zero_centred(after), mlp)


def _kinds(checkpoint: Checkpoint) -> list[str]:
    """The kind of each layer (`Qwen3_5TextConfig.layer_types`, or every fourth is attention)."""
    count = checkpoint.integer("num_hidden_layers")
    interval = checkpoint.integer("full_attention_interval", 4)
    kinds = checkpoint.config.get("layer_types") or [
        "linear_attention" if (i + 1) % interval else "full_attention" for i in range(count)
    ]
    allowed = ("linear_attention", "full_attention")
    if (
        not isinstance(kinds, list)
        or len(kinds) != count
        or not all(kind in allowed for kind in kinds)
    ):
        raise checkpoint.invalid(
            "layer_types", kinds, f"{count} of linear_attention and full_attention"
        )
    return kinds


def _rotary_parameters(checkpoint: Checkpoint) -> tuple[int, float]:
    """How many entries of a head rotate, and theta (`compute_default_rope_parameters`).

    Sections for images (`mrope_section`) change nothing for text: all three positions are equal.
    """
    within = "rope_parameters"
    kind = checkpoint.setting("rope_type", "default", within=within)
    if kind != "default":
        raise checkpoint.invalid("rope_parameters.rope_type", kind, '"default"')
    factor = checkpoint.number("partial_rotary_factor", 0.25, within=within)
    rotary_dim = int(checkpoint.integer("head_dim") * factor)
    if rotary_dim < 2 or rotary_dim % 2 or factor > 1:
        raise checkpoint.invalid(
            "partial_rotary_factor", factor, "one that rotates an even part of head_dim"
        )
    return rotary_dim, checkpoint.number("rope_theta", 10000.0, within=within)
