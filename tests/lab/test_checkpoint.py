"""What is wrong with a checkpoint is said in one line that names the file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch_file

from ddtree_ops_cli.errors import DdtreeError
from ddtree_ops_cli.lab.checkpoint import read_checkpoint
from ddtree_ops_cli.lab.decode import Engine, Speculation
from ddtree_ops_cli.lab.target import ARCHITECTURE
from tests.lab.random_pair import write_random_pair

Edit = Callable[[Path, Path], None]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return write_random_pair(tmp_path)


def configure(directory: Path, **changes: Any) -> None:
    """Changes config.json; None removes a key."""
    file = directory / "config.json"
    config = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def reweigh(directory: Path, **changes: Any) -> None:
    """Replaces tensors (names with `__` for dots); None removes one."""
    file = directory / "model.safetensors"
    tensors = load_file(file) | {key.replace("__", "."): value for key, value in changes.items()}
    save_file({key: value for key, value in tensors.items() if value is not None}, file)


def truncate(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


REFUSALS: dict[str, tuple[Edit, str]] = {
    "no directory": (
        lambda target, _: shutil.rmtree(target),
        "target: no such directory; give the folder that holds config.json",
    ),
    "no config": (
        lambda target, _: (target / "config.json").unlink(),
        "target/config.json: no such file; copy the checkpoint again, whole",
    ),
    "config is not JSON": (
        lambda target, _: truncate(target / "config.json", 20),
        "target/config.json: not JSON: ",
    ),
    "config is a list": (
        lambda target, _: (target / "config.json").write_text("[]") and None,
        "target/config.json: not a JSON object",
    ),
    "no weights": (
        lambda _, drafter: (drafter / "model.safetensors").unlink(),
        "drafter/model.safetensors: no such file; copy the checkpoint again, whole",
    ),
    "weights cut in the data": (
        lambda target, _: truncate(target / "model.safetensors", 100_000),
        "target/model.safetensors: truncated or damaged safetensors file",
    ),
    "weights cut in the header": (
        lambda target, _: truncate(target / "model.safetensors", 100),
        "target/model.safetensors: truncated or damaged safetensors file",
    ),
    "empty weights": (
        lambda target, _: truncate(target / "model.safetensors", 0),
        "target/model.safetensors: truncated or damaged safetensors file",
    ),
    "foreign target": (
        lambda target, _: configure(target, architectures=["LlamaForCausalLM"]),
        'target/config.json: architecture is ["LlamaForCausalLM"], expected Qwen3_5ForCausalLM',
    ),
    "foreign drafter": (
        lambda _, drafter: configure(drafter, architectures=None),
        "drafter/config.json: architecture is null, expected DFlashDraftModel",
    ),
    "missing tensor": (
        lambda target, _: reweigh(target, model__layers__2__linear_attn__A_log=None),
        "target: tensor model.layers.2.linear_attn.A_log is missing",
    ),
    "wrong shape": (
        lambda target, _: configure(target, intermediate_size=130),
        "target: tensor model.layers.0.mlp.gate_proj.weight has shape [128, 64], config.json "
        "implies [130, 64]",
    ),
    "integer tensor": (
        lambda target, _: reweigh(target, model__norm__weight=np.zeros(64, np.int32)),
        "target/model.safetensors: tensor model.norm.weight has type I32",
    ),
    "missing size": (
        lambda target, _: configure(target, hidden_size=None),
        "target/config.json: hidden_size is null, the lab engine needs a positive integer",
    ),
    "negative epsilon": (
        lambda target, _: configure(target, rms_norm_eps=-1),
        "target/config.json: rms_norm_eps is -1, the lab engine needs a positive number",
    ),
    "other activation": (
        lambda target, _: configure(target, hidden_act="gelu"),
        'target/config.json: hidden_act is "gelu", the lab engine needs "silu"',
    ),
    "other layers": (
        lambda target, _: configure(target, layer_types=["full_attention", "mamba"]),
        'target/config.json: layer_types is ["full_attention", "mamba"], the lab engine needs 4',
    ),
    "scaled rotary": (
        lambda target, _: configure(target, rope_parameters={"rope_type": "yarn"}),
        'target/config.json: rope_parameters.rope_type is "yarn", the lab engine needs "default"',
    ),
    "rotary settings that are no object": (
        lambda target, _: configure(target, rope_parameters="default"),
        'target/config.json: rope_parameters is "default", the lab engine needs an object',
    ),
    "odd rotary": (
        lambda target, _: configure(
            target, rope_parameters={"partial_rotary_factor": 0.2, "rope_theta": 100}
        ),
        "target/config.json: partial_rotary_factor is 0.2, the lab engine needs one that rotates",
    ),
    "layer types that are no names": (
        lambda target, _: configure(target, layer_types=[{}, 1, None, "full_attention"]),
        "target/config.json: layer_types is [{}, 1, null,",
    ),
    "heads that do not group": (
        lambda target, _: configure(target, linear_num_value_heads=3),
        "target/config.json: linear_num_value_heads is 3, the lab engine needs a multiple of "
        "linear_num_key_heads, which is 2",
    ),
    "drafter settings that are no object": (
        lambda _, drafter: configure(drafter, dflash_config=[0, 2]),
        "drafter/config.json: dflash_config is [0, 2], the lab engine needs an object",
    ),
    "drafter of another width": (
        lambda _, drafter: configure(drafter, hidden_size=128),
        "drafter/config.json: hidden_size is 128, the target's is 64; use the drafter that was "
        "trained for this target",
    ),
    "drafter of another vocabulary": (
        lambda _, drafter: configure(drafter, vocab_size=321),
        "drafter/config.json: vocab_size is 321, the target's is 320",
    ),
    "drafter for another depth": (
        lambda _, drafter: configure(drafter, num_target_layers=8),
        "drafter/config.json: num_target_layers is 8, the target's is 4",
    ),
    "drafter that reads a layer too many": (
        lambda _, drafter: configure(
            drafter, dflash_config={"target_layer_ids": [0, 4], "mask_token_id": 319}
        ),
        "drafter/config.json: dflash_config.target_layer_ids is [0, 4], the lab engine needs",
    ),
    "drafter without a mask": (
        lambda _, drafter: configure(drafter, dflash_config={"target_layer_ids": [0, 2]}),
        "drafter/config.json: dflash_config.mask_token_id is null, the lab engine needs",
    ),
    "block of one": (
        lambda _, drafter: configure(drafter, block_size=1),
        "drafter/config.json: block_size is 1, the lab engine needs an integer of at least 2",
    ),
    "fc of another feature count": (
        lambda _, drafter: configure(
            drafter, dflash_config={"target_layer_ids": [0, 1, 2], "mask_token_id": 319}
        ),
        "drafter: tensor fc.weight has shape [64, 128], config.json implies [64, 192]",
    ),
    "unknown layer of the drafter": (
        lambda _, drafter: configure(drafter, layer_types=["full_attention", "linear_attention"]),
        'drafter/config.json: layer_types[1] is "linear_attention", the lab engine needs',
    ),
    "window without a size": (
        lambda _, drafter: configure(drafter, layer_types=["sliding_attention"] * 2),
        "drafter/config.json: sliding_window is null, the lab engine needs a positive integer",
    ),
}


@pytest.mark.parametrize(("spoil", "message"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_checkpoint_that_cannot_be_used_is_refused_in_one_line(
    pair: tuple[Path, Path], spoil: Edit, message: str
) -> None:
    spoil(*pair)
    with pytest.raises(DdtreeError) as caught:
        Engine.load(*pair, Speculation("DDTREE"))
    assert type(caught.value) is DdtreeError
    assert str(caught.value).startswith(f"{pair[0].parent}/{message}")
    assert "\n" not in str(caught.value)


def test_bf16_and_f16_are_widened_exactly(tmp_path: Path) -> None:
    values = torch.tensor([1.0, -2.5, 3.140625, 1e-30, 65504.0])
    tensors = {"b": values.bfloat16(), "h": values.half(), "f": values}
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [ARCHITECTURE]}))
    save_torch_file(tensors, tmp_path / "model.safetensors")
    found = read_checkpoint(tmp_path, architecture=ARCHITECTURE)
    for name, tensor in tensors.items():
        assert found.tensors[name].dtype == np.float32
        assert (found.tensors[name] == tensor.float().numpy()).all()


def test_shards_are_read_through_their_index(pair: tuple[Path, Path]) -> None:
    target, _ = pair
    whole = read_checkpoint(target, architecture=ARCHITECTURE).tensors
    names = sorted(whole)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in shards.items():
        save_file({name: whole[name] for name in held}, target / file)
    weight_map = {name: file for file, held in shards.items() for name in held}
    index = target / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    (target / "model.safetensors").unlink()

    found = read_checkpoint(target, architecture=ARCHITECTURE).tensors
    assert sorted(found) == names
    assert all((found[name] == whole[name]).all() for name in names)

    (target / "b.safetensors").unlink()
    with pytest.raises(DdtreeError, match=r"b\.safetensors: no such file"):
        read_checkpoint(target, architecture=ARCHITECTURE)
    index.write_text("{}")
    with pytest.raises(DdtreeError, match=r"index\.json: weight_map is missing"):
        read_checkpoint(target, architecture=ARCHITECTURE)
