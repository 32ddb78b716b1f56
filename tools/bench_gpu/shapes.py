"""Models of the shapes of Qwen3.6-27B and its DFlash drafter, without weights.

The facts are those of the two config.json files (Qwen/Qwen3.6-27B, its text part, and
z-lab/Qwen3.6-27B-DFlash). SGLang draws random weights for them (`--load-format dummy`). The
drafter's sliding window of 2048 tokens is left out: no context here reaches it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddtree_ops_cli.services.shapes import Pair, drafter_shape, target_shape

Config = Mapping[str, Any]

_BF16 = 2
_PERIOD = 4
"""Of four layers, three are gated DeltaNet and the last is attention."""
_BYTES = 256

TARGET: Config = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "hidden_size": 5120,
    "num_hidden_layers": 64,
    "intermediate_size": 17408,
    "vocab_size": 248_320,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "attn_output_gate": True,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "partial_rotary_factor": 0.25,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10_000_000,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    },
    "linear_conv_kernel_dim": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    # SGLang 0.5.17 reads these two beside layer_types.
    "full_attention_interval": _PERIOD,
    "mamba_ssm_dtype": "float32",
    "layer_types": [
        "full_attention" if layer % _PERIOD == 0 else "linear_attention" for layer in range(1, 65)
    ],
    "max_position_embeddings": 262_144,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "initializer_range": 0.02,
    "use_cache": True,
    "dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
}

DRAFTER: Config = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 5120,
    "num_hidden_layers": 5,
    "intermediate_size": 17408,
    "vocab_size": 248_320,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "attention_bias": False,
    "rope_theta": 10_000_000,
    "block_size": 16,
    "num_target_layers": 64,
    "dflash_config": {"target_layer_ids": [1, 16, 31, 46, 61], "mask_token_id": 248_070},
    "max_position_embeddings": 262_144,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def pair() -> Pair:
    """The two as the project's memory plan reads them."""
    drafter = drafter_shape(DRAFTER, where="DRAFTER")
    return Pair(
        target=target_shape(TARGET, where="TARGET"),
        target_bytes=_BF16 * _target_parameters(),
        drafter=drafter,
        drafter_bytes=_BF16 * drafter.parameters,
    )


def _target_parameters() -> int:
    """Matrices and convolutions: a norm has no more than a row."""
    hidden, kinds = TARGET["hidden_size"], TARGET["layer_types"]
    key = TARGET["linear_num_key_heads"] * TARGET["linear_key_head_dim"]
    value = TARGET["linear_num_value_heads"] * TARGET["linear_value_head_dim"]
    # q, k, v and gate; alpha and beta; the convolution; out.
    recurrent = hidden * (2 * key + 2 * value + 2 * TARGET["linear_num_value_heads"])
    recurrent += (2 * key + value) * TARGET["linear_conv_kernel_dim"] + value * hidden
    queries = TARGET["num_attention_heads"] * TARGET["head_dim"]
    keys = TARGET["num_key_value_heads"] * TARGET["head_dim"]
    # q with its gate, out; k and v.
    attending = hidden * (3 * queries + 2 * keys)
    layers = kinds.count("linear_attention") * recurrent
    layers += kinds.count("full_attention") * attending
    layers += len(kinds) * 3 * hidden * TARGET["intermediate_size"]
    return int(layers + 2 * TARGET["vocab_size"] * hidden)


def write_pair(folder: Path) -> tuple[Path, Path]:
    """Target and drafter below `folder`, with a tokenizer whose tokens are bytes.

    A simulated acceptance emits token 100, which then is a letter: every step shows as text, as a
    stream of answers needs it.
    """
    target, drafter = folder / "target", folder / "drafter"
    for place, config in ((target, TARGET), (drafter, DRAFTER)):
        place.mkdir(parents=True, exist_ok=True)
        (place / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    _write_tokenizer(target)
    return target, drafter


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    names = _byte_names()
    vocabulary = {names[byte]: byte for byte in range(_BYTES)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "chat_template": "{%- for message in messages -%}{{ message.content }}{%- endfor -%}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def _byte_names() -> dict[int, str]:
    """The printable character that byte-level tokenizers write for each byte (as GPT-2 has it)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(_BYTES) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {
        byte: chr(_BYTES + place) for place, byte in enumerate(others)
    }
