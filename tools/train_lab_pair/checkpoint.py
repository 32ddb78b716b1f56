"""The pair on disk: config.json, bf16 safetensors under the names that engines expect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from .drafter import Drafter
from .shapes import DrafterShape, TargetShape, drafter_config, target_config
from .target import Target


def _save(model: nn.Module, config: dict[str, Any], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    weights = {
        name: weight.detach().to("cpu", torch.bfloat16).contiguous()
        for name, weight in model.state_dict().items()
    }
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def save_target(target: Target, directory: Path) -> None:
    _save(target, target_config(target.shape), directory)


def save_drafter(drafter: Drafter, directory: Path) -> None:
    _save(drafter, drafter_config(drafter.shape, TargetShape()), directory)


def _load(model: nn.Module, directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    model.load_state_dict({name: weight.float() for name, weight in weights.items()})


def load_target(directory: Path, device: torch.device) -> Target:
    """The saved (bf16-rounded) weights in float32, frozen: what every later step must see."""
    target = Target(TargetShape())
    _load(target, directory)
    return target.to(device).requires_grad_(requires_grad=False)


def load_drafter(directory: Path, device: torch.device) -> Drafter:
    drafter = Drafter(DrafterShape())
    _load(drafter, directory)
    return drafter.to(device).requires_grad_(requires_grad=False)
