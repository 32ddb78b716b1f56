"""The drafter against transformers' Qwen3 layers, fed with DFlash's context keys and values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import DynamicCache, Qwen3Config, Qwen3Model
from transformers.models.qwen3.modeling_qwen3 import apply_rotary_pos_emb

from ddtree_ops_cli.lab import drafter as drafters
from ddtree_ops_cli.lab.attention import KeyValues
from ddtree_ops_cli.lab.checkpoint import read_checkpoint
from ddtree_ops_cli.lab.drafter import Drafter
from ddtree_ops_cli.lab.target import ARCHITECTURE, Target
from tests.lab.random_pair import BLOCK, HIDDEN, MASK, write_random_pair

TOLERANCE = 1e-4
KINDS: dict[str, dict[str, Any]] = {
    "both directions": {},
    "full layers named": {"layer_types": ["full_attention", "full_attention"]},
    "full layers, causal": {
        "layer_types": ["full_attention", "full_attention"],
        "is_causal": True,
    },
    "a window of 9 and a full layer": {
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 9,
    },
}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """The random pair, with every weight of the drafter redrawn so that each one matters."""
    target, drafter = write_random_pair(tmp_path)
    random = np.random.default_rng(5)
    file = drafter / "model.safetensors"
    weights = {
        name: (random.standard_normal(held.shape) * 0.5 / held.shape[-1] ** 0.5).astype(np.float32)
        if held.ndim == 2
        else (1 + 0.3 * random.standard_normal(held.shape)).astype(np.float32)
        for name, held in load_file(file).items()
    }
    save_file(weights, file)
    return target, drafter


def load(pair: tuple[Path, Path]) -> Drafter:
    target = Target(read_checkpoint(pair[0], architecture=ARCHITECTURE))
    return Drafter(read_checkpoint(pair[1], architecture=drafters.ARCHITECTURE), target)


def configure(directory: Path, changes: dict[str, Any]) -> dict[str, Any]:
    file = directory / "config.json"
    config: dict[str, Any] = json.loads(file.read_text()) | changes
    file.write_text(json.dumps(config))
    return config


def expected_logits(pair: tuple[Path, Path], features: Any, root: int) -> Any:
    """What transformers' Qwen3 stack makes of the block behind `features`."""
    config = json.loads((pair[1] / "config.json").read_text())
    kinds = config.pop("layer_types", ["full_attention"] * 2)
    for key in ("architectures", "dflash_config", "torch_dtype", "model_type"):
        del config[key]
    stack = Qwen3Model(Qwen3Config(**config, attn_implementation="eager")).float().eval()
    weights = {
        name: torch.tensor(w) for name, w in load_file(pair[1] / "model.safetensors").items()
    }
    fc, hidden_norm = weights.pop("fc.weight"), weights.pop("hidden_norm.weight")
    missing, unexpected = stack.load_state_dict(weights, strict=False)
    assert (missing, unexpected) == (["embed_tokens.weight"], [])
    target = load_file(pair[0] / "model.safetensors")

    context = torch.tensor(features) @ fc.T
    context = context * torch.rsqrt(context.pow(2).mean(-1, keepdim=True) + 1e-6) * hidden_norm
    count, cache = len(context), DynamicCache()
    angles = stack.rotary_emb(context, torch.arange(count)[None])
    for index, layer in enumerate(stack.layers):
        attention = layer.self_attn
        key = attention.k_norm(attention.k_proj(context).view(1, count, 2, 16)).transpose(1, 2)
        value = attention.v_proj(context).view(1, count, 2, 16).transpose(1, 2)
        cache.update(apply_rotary_pos_emb(key, key, *angles)[1], value, index)

    queries = torch.arange(count, count + BLOCK)[:, None]
    keys = torch.arange(count + BLOCK)
    masks = []
    for kind in kinds:
        seen = torch.ones(BLOCK, count + BLOCK, dtype=torch.bool)
        if kind == "sliding_attention":
            seen = (keys <= queries) & (keys > queries - config["sliding_window"])
        elif config.get("is_causal"):
            seen = keys <= queries
        masks.append(torch.where(seen, 0.0, -torch.inf)[None, None])
    hidden = torch.tensor(target["model.embed_tokens.weight"][[root] + [MASK] * (BLOCK - 1)])[None]
    angles = stack.rotary_emb(hidden, queries.T)
    for layer, mask in zip(stack.layers, masks, strict=True):
        hidden = layer(
            hidden,
            attention_mask=mask,
            past_key_values=cache,
            position_embeddings=angles,
        )
    return (stack.norm(hidden)[0, 1:] @ torch.tensor(target["lm_head.weight"]).T).numpy()


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("prefix", ["", "model."])
def test_draft_logits_equal_those_of_transformers_layers(
    pair: tuple[Path, Path], changes: dict[str, Any], prefix: str
) -> None:
    configure(pair[1], changes)
    features = np.random.default_rng(0).standard_normal((40, 2 * HIDDEN)).astype(np.float32)
    with torch.no_grad():
        expected = expected_logits(pair, features, root=65)
    if prefix:
        file = pair[1] / "model.safetensors"
        save_file({prefix + name: held for name, held in load_file(file).items()}, file)
    drafter = load(pair)
    context = drafter.initial_context()
    # Context arrives in pieces, and drafting in between leaves nothing behind.
    for piece in (features[:1], features[1:20], features[20:]):
        drafter.extend(context, piece)
        drafter.draft(context, 3)
    found = drafter.draft(context, 65)
    assert found.shape == (BLOCK - 1, 320)
    assert np.abs(found - expected).max() < TOLERANCE


def test_an_empty_context_can_be_drafted_from(pair: tuple[Path, Path]) -> None:
    drafter = load(pair)
    found = drafter.draft(drafter.initial_context(), 65)
    features = np.zeros((0, 2 * HIDDEN), np.float32)
    with torch.no_grad():
        assert np.abs(found - expected_logits(pair, features, root=65)).max() < TOLERANCE


def test_a_cache_grows_without_losing_rows() -> None:
    random = np.random.default_rng(0)
    cache = KeyValues(2, 4)
    rows = random.standard_normal((1000, 2, 4)).astype(np.float32)
    for start in range(0, 1000, 100):
        cache.write(rows[start : start + 100], -rows[start : start + 100])
        cache.keep(np.arange(100))
    keys, values = cache.write(rows[:1], rows[:1])
    assert (keys[:, :1000] == rows.transpose(1, 0, 2)).all()
    assert (values[:, :1000] == -rows.transpose(1, 0, 2)).all()


def test_compaction_moves_a_path_that_skips_rows() -> None:
    cache = KeyValues(1, 1)
    rows = np.arange(8, dtype=np.float32).reshape(8, 1, 1)
    cache.write(rows[:2], rows[:2])
    cache.keep(np.arange(2))
    cache.write(10 + rows[:6], 20 + rows[:6])
    cache.keep(np.array([0, 2, 3, 5]))
    assert cache.length == 6
    assert cache.keys[0, :6, 0].tolist() == [0, 1, 10, 12, 13, 15]
    assert cache.values[0, :6, 0].tolist() == [0, 1, 20, 22, 23, 25]
