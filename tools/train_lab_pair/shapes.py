"""The shapes of the lab pair, and the config.json files that say them to every engine.

The target is a Qwen3.5 text hybrid: three gated-DeltaNet (GDN) layers to one gated attention
layer, twice. The drafter is a DFlash block-diffusion model that borrows the target's embedding
and head. Shapes are in elements; both together stay under 32 MB of bf16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
VOCAB_SIZE = 4096
# Specials come last, so that the byte-level alphabet and the merges keep the ids that BPE gives.
END_OF_TEXT, IM_START, IM_END, MASK = range(VOCAB_SIZE - len(SPECIAL_TOKENS), VOCAB_SIZE)
CONTEXT_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class TargetShape:
    vocab: int = VOCAB_SIZE
    hidden: int = 256
    ffn: int = 1024
    layers: int = 8
    attention_interval: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    rotary_dim: int = 16
    rope_theta: float = 10000.0
    gdn_key_heads: int = 2
    gdn_value_heads: int = 4
    gdn_head_dim: int = 64
    conv_kernel: int = 4
    eps: float = 1e-6

    def is_attention(self, layer: int) -> bool:
        return (layer + 1) % self.attention_interval == 0


@dataclass(frozen=True, slots=True)
class DrafterShape:
    hidden: int = 256
    ffn: int = 1024
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    rope_theta: float = 10000.0
    block_size: int = 16
    # The hidden states after these target layers are the drafter's context.
    target_layer_ids: tuple[int, ...] = (1, 4, 6)
    eps: float = 1e-6


def target_config(shape: TargetShape) -> dict[str, Any]:
    """config.json of the target, as transformers and SGLang read `Qwen3_5ForCausalLM`."""
    kinds = [
        "full_attention" if shape.is_attention(i) else "linear_attention"
        for i in range(shape.layers)
    ]
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        # SGLang reads the interval, transformers the list.
        "full_attention_interval": shape.attention_interval,
        "layer_types": kinds,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "attn_output_gate": True,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "partial_rotary_factor": shape.rotary_dim / shape.head_dim,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": shape.rope_theta,
            "partial_rotary_factor": shape.rotary_dim / shape.head_dim,
        },
        "linear_num_key_heads": shape.gdn_key_heads,
        "linear_num_value_heads": shape.gdn_value_heads,
        "linear_key_head_dim": shape.gdn_head_dim,
        "linear_value_head_dim": shape.gdn_head_dim,
        "linear_conv_kernel_dim": shape.conv_kernel,
        "mamba_ssm_dtype": "float32",
        "hidden_act": "silu",
        "rms_norm_eps": shape.eps,
        "max_position_embeddings": CONTEXT_LENGTH,
        "tie_word_embeddings": False,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": IM_END,
        "pad_token_id": END_OF_TEXT,
        "dtype": "bfloat16",
    }


def drafter_config(shape: DrafterShape, target: TargetShape) -> dict[str, Any]:
    """config.json of the drafter, as SGLang's `DFlashDraftModel` reads it."""
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "vocab_size": target.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "attention_bias": False,
        "hidden_act": "silu",
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.rope_theta,
        "max_position_embeddings": CONTEXT_LENGTH,
        "tie_word_embeddings": False,
        "block_size": shape.block_size,
        "num_target_layers": target.layers,
        "dflash_config": {
            "target_layer_ids": list(shape.target_layer_ids),
            "mask_token_id": MASK,
        },
        "bos_token_id": None,
        "eos_token_id": IM_END,
        "pad_token_id": END_OF_TEXT,
        "dtype": "bfloat16",
    }
