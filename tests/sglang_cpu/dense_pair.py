"""A tiny dense Qwen3 target for the drafter of the random pair.

Same embedding and head, so that the drafter is right as often as with the hybrid target; attention
layers of its own. See tests/lab/random_pair.py for what the two entries set aside are for.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.lab.random_pair import HIDDEN, write_random_pair

_LAYERS = 4
_NOISE = 1.2
_SET_ASIDE = 2


def write_dense_pair(directory: Path) -> tuple[Path, Path]:
    """Writes `target` and `drafter` below `directory` and returns their paths."""
    target, drafter = write_random_pair(directory)
    hybrid = load_file(target / "model.safetensors")
    weights = {name: hybrid[name] for name in ("model.embed_tokens.weight", "lm_head.weight")}
    weights["model.norm.weight"] = np.ones(HIDDEN, np.float32)
    random = np.random.default_rng(7)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) / columns**0.5).astype(np.float32)

    def writer(columns: int) -> np.ndarray:
        values = _NOISE * matrix(HIDDEN, columns)
        values[:_SET_ASIDE] = 0
        return values.astype(np.float32)

    for layer in range(_LAYERS):
        prefix = f"model.layers.{layer}"
        weights |= {
            f"{prefix}.input_layernorm.weight": np.ones(HIDDEN, np.float32),
            f"{prefix}.post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
            f"{prefix}.self_attn.q_proj.weight": matrix(64, HIDDEN),
            f"{prefix}.self_attn.k_proj.weight": matrix(32, HIDDEN),
            f"{prefix}.self_attn.v_proj.weight": matrix(32, HIDDEN),
            f"{prefix}.self_attn.o_proj.weight": writer(64),
            f"{prefix}.self_attn.q_norm.weight": np.full(16, 1.5, np.float32),
            f"{prefix}.self_attn.k_norm.weight": np.ones(16, np.float32),
            f"{prefix}.mlp.gate_proj.weight": matrix(128, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": matrix(128, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": writer(128),
        }
    config = json.loads((target / "config.json").read_text())
    kept = {
        key: value
        for key, value in config.items()
        if not key.startswith("linear_")
        and key
        not in (
            "layer_types",
            "full_attention_interval",
            "mamba_ssm_dtype",
            "attn_output_gate",
            "partial_rotary_factor",
            "rope_parameters",
        )
    }
    kept |= {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": _LAYERS,
        "rope_theta": 10000.0,
    }
    for stale in target.iterdir():
        if stale.name.startswith(("config", "model")):
            stale.unlink()
    (target / "config.json").write_text(json.dumps(kept, indent=2) + "\n")
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    return target, drafter
