"""Real folders of weights, whole and in every state that they can be in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.services.pair_on_disk import (
    SHARDS,
    edit,
    found,
    refusal,
    spec,
)


def test_a_whole_pair_is_found_with_the_size_that_is_loaded(pair: tuple[Path, Path]) -> None:
    models = found(spec(*pair))
    tensors = {n: t for shard in SHARDS for n, t in load_file(pair[0] / shard).items()}
    assert models.target.parameters == sum(tensor.size for tensor in tensors.values())
    assert models.pair.target_bytes == models.target.parameters * 2, "float32 is served halved"
    assert models.drafter is not None
    assert models.pair.drafter is not None
    assert models.drafter.directory == str(pair[1])


def test_a_target_alone_needs_no_drafter(pair: tuple[Path, Path]) -> None:
    assert found(spec(pair[0], None)).pair.drafter is None


def test_layers_that_the_engine_skips_are_not_counted(pair: tuple[Path, Path]) -> None:
    before = found(spec(pair[0], None)).pair.target_bytes
    extra = {
        "mtp.layers.0.weight": np.ones((8, 8), np.float32),
        "model.visual.patch_embed.weight": np.ones((4, 4), np.float32),
    }
    save_file(extra, pair[0] / "model-00003-of-00003.safetensors")
    index = pair[0] / "model.safetensors.index.json"
    names = json.loads(index.read_text())["weight_map"]
    edit(index, weight_map=names | dict.fromkeys(extra, "model-00003-of-00003.safetensors"))
    assert found(spec(pair[0], None)).pair.target_bytes == before
    edit(pair[0] / "config.json", architectures=["Qwen3_5ForConditionalGeneration"])
    assert found(spec(pair[0], None)).pair.target_bytes > before


def test_a_folder_that_is_not_there_names_what_to_copy_where(tmp_path: Path) -> None:
    text = refusal(spec("/srv/my models/target", None))
    assert "host ct200: the target /srv/my models/target does not exist" in text
    assert "rsync -aL --partial FOLDER/ ct200:'/srv/my models/target/'" in text


def test_both_models_are_named_at_once(tmp_path: Path) -> None:
    text = refusal(spec("org/target", "org/drafter"), cache=tmp_path)
    assert f"HF_HUB_CACHE={tmp_path} hf download org/target" in text
    assert f"HF_HUB_CACHE={tmp_path} hf download org/drafter" in text


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_truncated_shard_is_found(pair: tuple[Path, Path], keep: int) -> None:
    shard = pair[0] / SHARDS[1]
    whole = shard.read_bytes()
    shard.write_bytes(whole[:keep])
    text = refusal(spec(*pair))
    assert f"ct200:{shard}: truncated" in text
    assert "copy this file again" in text
    shard.write_bytes(whole + b"\0")
    assert "too long" in refusal(spec(*pair))


def test_an_index_that_names_a_missing_file(pair: tuple[Path, Path]) -> None:
    (pair[0] / SHARDS[1]).unlink()
    text = refusal(spec(*pair))
    assert f"ct200:{pair[0]}: 1 of 2 weight files are missing: {SHARDS[1]}" in text


def test_an_index_of_another_checkpoint(pair: tuple[Path, Path]) -> None:
    index = pair[0] / "model.safetensors.index.json"
    names = json.loads(index.read_text())["weight_map"]
    edit(index, weight_map=names | {"model.other.weight": SHARDS[0]})
    text = refusal(spec(*pair))
    assert "1 of" in text
    assert "model.other.weight" in text
    for bad in ({}, [], None):
        edit(index, weight_map=bad)
        assert "weight_map is missing" in refusal(spec(*pair))


def test_weights_without_an_index_or_any_file(pair: tuple[Path, Path]) -> None:
    (pair[1] / "model.safetensors").unlink()
    assert "1 of 1 weight files are missing: model.safetensors" in refusal(spec(*pair))


@pytest.mark.parametrize("name", [SHARDS[0], "config.json"])
def test_lfs_pointers_instead_of_files(pair: tuple[Path, Path], name: str) -> None:
    (pair[0] / name).write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 3996452408\n"
    )
    text = refusal(spec(*pair))
    assert f"ct200:{pair[0] / name}: this is a Git LFS pointer" in text
    assert "git lfs pull" in text


@pytest.mark.parametrize(
    "content", [b"\x10\0\0\0\0\0\0\0not a json text.", b"\x02\0\0\0\0\0\0\0[]", b"\xff" * 64]
)
def test_what_is_no_safetensors_file(pair: tuple[Path, Path], content: bytes) -> None:
    (pair[1] / "model.safetensors").write_bytes(content)
    text = refusal(spec(*pair))
    assert f"ct200:{pair[1]}/model.safetensors: " in text
    assert "no safetensors file" in text or "end within the header" in text


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"vocab_size": 1}'])
def test_a_config_that_is_none(pair: tuple[Path, Path], text: str) -> None:
    (pair[1] / "config.json").write_text(text)
    assert f"ct200:{pair[1]}/config.json: " in refusal(spec(*pair))
    (pair[1] / "config.json").unlink()
    assert "the drafter has no readable config.json" in refusal(spec(*pair))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"vocab_size": 999}, "a vocabulary of 999, the target 320"),
        ({"hidden_size": 32}, "a hidden size of 32, the target 64"),
        ({"num_target_layers": 40}, "a target of as many layers as 40, the target 4"),
        ({"dflash_config": {"target_layer_ids": [1, 4]}}, "target_layer_ids [1, 4], the target 4"),
        ({"dflash_config": {"target_layer_ids": []}}, "target_layer_ids is []"),
        ({"dflash_config": {}}, "target_layer_ids is null"),
    ],
)
def test_a_drafter_of_another_target(
    pair: tuple[Path, Path], changes: dict[str, Any], what: str
) -> None:
    edit(pair[1] / "config.json", **changes)
    text = refusal(spec(*pair))
    assert f"ct200:{pair[1]}/config.json: " in text
    assert what in text


def test_a_block_size_that_the_profile_does_not_have(pair: tuple[Path, Path]) -> None:
    text = refusal(spec(*pair, block_size=8))
    assert "the drafter's block_size is 16, the model profile's 8" in text
    assert "set block_size: 16" in text
