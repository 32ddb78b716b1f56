"""A tiny hybrid target and a DFlash drafter with weights drawn at random, good enough to test with.

Plain random weights would not do: a random drafter is never right, and the code that commits
accepted nodes would stay untested. So some structure is laid under the noise.

- The target's head reads the last token's embedding in its residual stream and favours two tokens:
  the token itself and its successor under a random permutation. The layers, which are random, see
  the context and decide between the two (and now and then for another token).
- The drafter copies the embedding of the root to every mask position. Through the target's head it
  thus proposes "the same token again" and "its successor" at every depth, one of them as its
  argmax. The target often wants the other: then a node off the spine is accepted.

Two entries of the residual stream are set aside, and no layer writes to them: one is constant for
every token, by which the head rules out special tokens and the drafter finds its root; the other
marks the mask token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCABULARY = 320
HIDDEN = 64
BLOCK = 16
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
END_OF_TEXT, IM_START, IM_END, MASK = (VOCABULARY - 4 + i for i in range(4))

LAYERS = ("linear_attention", "linear_attention", "linear_attention", "full_attention")
# Entries of the residual stream; those from _FREE on are the embedding proper.
_CONSTANT, _MARKER, _FREE = 0, 1, 2
# Found by trial: enough noise that the target leaves a repeated token again, little enough that the
# drafter is often right. With seed 0, over the 40 prompts of test_decode.py and 64 tokens each:
# linear accept length 3.9, tree of 16 nodes 4.5, 0.23 accepted off the spine in a step.
_TARGET_NOISE = 1.5
_DRAFTER_NOISE = 0.3
_PULL = np.float32(0.2)
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Weights = dict[str, NDArray[np.float32]]


def write_random_pair(
    directory: Path, *, seed: int = 0, layers: Sequence[str] = LAYERS
) -> tuple[Path, Path]:
    """Writes `target` and `drafter` below `directory` and returns their paths.

    `layers` are the target's, the only one with full attention last.
    """
    random = np.random.default_rng(seed)
    target, drafter = directory / "target", directory / "drafter"
    _write(target, _target_config(layers), _target_weights(random, layers))
    _write(drafter, _drafter_config(layers), _drafter_weights(random, layers))
    _write_tokenizer(target)
    return target, drafter


class _Draw:
    """Random matrices whose output has about the size of their input."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random

    def matrix(self, rows: int, columns: int, scale: float = 1.0) -> NDArray[np.float32]:
        values = self._random.standard_normal((rows, columns), np.float32)
        return values * np.float32(scale / columns**0.5)

    def writer(self, columns: int, scale: float) -> NDArray[np.float32]:
        """A matrix into the residual stream that leaves the entries set aside alone."""
        values = self.matrix(HIDDEN, columns, scale)
        values[:_FREE] = 0
        return values

    def vector(self, size: int, scale: float, mean: float = 0.0) -> NDArray[np.float32]:
        return (mean + scale * self._random.standard_normal(size)).astype(np.float32)


def _target_weights(random: np.random.Generator, layers: Sequence[str]) -> Weights:
    draw = _Draw(random)
    embedding = random.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32)
    embedding[:, _CONSTANT] = 1
    embedding[:, _MARKER] = 0
    embedding[MASK] = 0
    embedding[MASK, _MARKER] = 4

    ordinary = np.arange(VOCABULARY - len(SPECIAL_TOKENS))
    successor = random.permutation(ordinary)
    head = _PULL * embedding
    head[successor] += _PULL * embedding[ordinary]
    head[:, :_FREE] = 0
    head[len(ordinary) :] = 0
    head[len(ordinary) :, _CONSTANT] = -30
    weights = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": np.zeros(HIDDEN, np.float32),
        "lm_head.weight": head,
    }
    for index, kind in enumerate(layers):
        prefix = f"model.layers.{index}"
        weights[f"{prefix}.input_layernorm.weight"] = draw.vector(HIDDEN, 0.1)
        weights[f"{prefix}.post_attention_layernorm.weight"] = draw.vector(HIDDEN, 0.1)
        weights[f"{prefix}.mlp.gate_proj.weight"] = draw.matrix(128, HIDDEN)
        weights[f"{prefix}.mlp.up_proj.weight"] = draw.matrix(128, HIDDEN)
        weights[f"{prefix}.mlp.down_proj.weight"] = draw.writer(128, _TARGET_NOISE)
        if kind == "linear_attention":
            weights |= {
                f"{prefix}.linear_attn.in_proj_qkv.weight": draw.matrix(128, HIDDEN),
                f"{prefix}.linear_attn.in_proj_z.weight": draw.matrix(64, HIDDEN),
                f"{prefix}.linear_attn.in_proj_b.weight": draw.matrix(4, HIDDEN),
                f"{prefix}.linear_attn.in_proj_a.weight": draw.matrix(4, HIDDEN),
                f"{prefix}.linear_attn.conv1d.weight": draw.matrix(128, 4, 2).reshape(128, 1, 4),
                f"{prefix}.linear_attn.A_log": draw.vector(4, 0.5, mean=-2),
                f"{prefix}.linear_attn.dt_bias": draw.vector(4, 0.5),
                f"{prefix}.linear_attn.norm.weight": draw.vector(16, 0.1, mean=1),
                f"{prefix}.linear_attn.out_proj.weight": draw.writer(64, _TARGET_NOISE),
            }
        else:
            weights |= {
                f"{prefix}.self_attn.q_proj.weight": draw.matrix(128, HIDDEN),
                f"{prefix}.self_attn.k_proj.weight": draw.matrix(32, HIDDEN),
                f"{prefix}.self_attn.v_proj.weight": draw.matrix(32, HIDDEN),
                f"{prefix}.self_attn.o_proj.weight": draw.writer(64, _TARGET_NOISE),
                f"{prefix}.self_attn.q_norm.weight": draw.vector(16, 0.1, mean=1),
                f"{prefix}.self_attn.k_norm.weight": draw.vector(16, 0.1, mean=1),
            }
    return weights


def _drafter_weights(random: np.random.Generator, layers: Sequence[str]) -> Weights:
    draw = _Draw(random)
    ones = np.ones(HIDDEN, np.float32)
    fc = draw.matrix(HIDDEN, len(_read_layers(layers)) * HIDDEN)
    fc[:_FREE] = 0
    weights = {"fc.weight": fc, "hidden_norm.weight": ones, "norm.weight": ones}
    for index in range(2):
        prefix = f"layers.{index}"
        query = np.zeros((64, HIDDEN), np.float32)
        key = np.zeros((32, HIDDEN), np.float32)
        # The slowest rotary pair (entries 7 and 15) hardly turns within a block: there the mask's
        # query meets the root's key, whatever their distance.
        query[[7, 39], _MARKER] = 1
        key[[7, 23], _CONSTANT] = 1
        value = np.zeros((32, HIDDEN), np.float32)
        copied = np.arange(_FREE + 31 * index, _FREE + 31 * (index + 1))
        value[np.arange(31), copied] = 1
        output = draw.writer(64, _DRAFTER_NOISE)
        for head in (0, 2):
            output[:, head * 16 : (head + 1) * 16] = 0
        for slot, entry in enumerate(copied):
            output[entry, (0 if slot < 16 else 32) + slot % 16] = 1
        weights |= {
            f"{prefix}.input_layernorm.weight": ones,
            f"{prefix}.post_attention_layernorm.weight": ones,
            f"{prefix}.self_attn.q_proj.weight": query,
            f"{prefix}.self_attn.k_proj.weight": key,
            f"{prefix}.self_attn.v_proj.weight": value,
            f"{prefix}.self_attn.o_proj.weight": output,
            f"{prefix}.self_attn.q_norm.weight": np.full(16, 4, np.float32),
            f"{prefix}.self_attn.k_norm.weight": np.ones(16, np.float32),
            f"{prefix}.mlp.gate_proj.weight": draw.matrix(128, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": draw.matrix(128, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": draw.writer(128, _DRAFTER_NOISE),
        }
    return weights


def _read_layers(layers: Sequence[str]) -> list[int]:
    """Those of the target that the drafter reads; SGLang does not give it the last one's output."""
    return [layer for layer in (0, 2) if layer < len(layers) - 1]


def _target_config(layers: Sequence[str]) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "hidden_size": HIDDEN,
        "num_hidden_layers": len(layers),
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "full_attention_interval": len(layers),
        "layer_types": list(layers),
        "mamba_ssm_dtype": "float32",
        "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "attn_output_gate": True,
        "partial_rotary_factor": 0.25,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
        },
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": IM_END,
        "pad_token_id": END_OF_TEXT,
    }


def _drafter_config(layers: Sequence[str]) -> dict[str, Any]:
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "rope_theta": 10000.0,
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": IM_END,
        "pad_token_id": END_OF_TEXT,
        "block_size": BLOCK,
        "num_target_layers": len(layers),
        "dflash_config": {"target_layer_ids": _read_layers(layers), "mask_token_id": MASK},
    }


def _write(directory: Path, config: dict[str, Any], weights: Weights) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(config, indent=2) + "\n"
    (directory / "config.json").write_text(text, encoding="utf-8")
    contiguous = {name: np.ascontiguousarray(values) for name, values in weights.items()}
    save_file(contiguous, directory / "model.safetensors", metadata={"format": "pt"})


def _write_tokenizer(directory: Path) -> None:
    """Byte-level BPE: 256 bytes, then merges of letter pairs, then the special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(alphabet)}
    merges = [(a, b) for a in "etaoinsh" for b in "aeiourtn"][: VOCABULARY - 256 - 4]
    for first, second in merges:
        vocabulary[first + second] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
        "chat_template": _CHAT_TEMPLATE,
    }
    text = json.dumps(settings, indent=2) + "\n"
    (directory / "tokenizer_config.json").write_text(text, encoding="utf-8")
