"""Hugging Face checkpoints: config.json and safetensors, read into float32 NumPy arrays.

The file names and the sharded index are those of transformers' `save_pretrained`; tensor names are
left as they stand in the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from ..errors import DdtreeError
from .arrays import Floats

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

_COPY_AGAIN = "copy the checkpoint again, whole"
_OTHER_MODEL = "use a checkpoint whose weights belong to its config.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One model directory: its configuration and all its tensors, float32."""

    directory: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Floats]

    def tensor(self, name: str, *shape: int) -> Floats:
        """The named tensor, which must have exactly this shape (DdtreeError otherwise)."""
        found = self.tensors.get(name)
        if found is None:
            raise DdtreeError(
                f"tensor {name} is missing", where=str(self.directory), mend=_OTHER_MODEL
            )
        if found.shape != shape:
            raise DdtreeError(
                f"tensor {name} has shape {list(found.shape)}, config.json implies {list(shape)}",
                where=str(self.directory),
                mend=_OTHER_MODEL,
            )
        return found

    def setting(self, key: str, default: object = None, *, within: str | None = None) -> Any:
        """The value of `key` in the object `within` or, where that lacks it, beside that."""
        section = self.config.get(within) if within else None
        if section is None:
            section = {}
        if not isinstance(section, dict):
            raise self.invalid(str(within), section, "an object")
        return section.get(key, self.config.get(key, default))

    def integer(self, key: str, default: int | None = None) -> int:
        """A positive integer of config.json."""
        value = self.config.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.invalid(key, value, "a positive integer")
        return value

    def number(self, key: str, default: float, *, within: str | None = None) -> float:
        """A positive number of config.json."""
        value = self.setting(key, default, within=within)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.invalid(key, value, "a positive number")
        return float(value)

    def heads(self, key: str, grouped_key: str) -> tuple[int, int]:
        """Two head counts of config.json, of which the first is a multiple of the second."""
        heads = self.integer(key)
        grouped = self.integer(grouped_key, heads)
        if heads % grouped:
            raise self.invalid(key, heads, f"a multiple of {grouped_key}, which is {grouped}")
        return heads, grouped

    def require(self, key: str, *allowed: object, default: object = None) -> None:
        """Refuses a config.json whose `key` asks for something that the lab does not compute."""
        value = self.config.get(key, default)
        if value not in allowed:
            raise self.invalid(key, value, " or ".join(json.dumps(item) for item in allowed))

    def invalid(self, key: str, value: object, expected: str) -> DdtreeError:
        """The error for a value of config.json that the lab cannot work with."""
        return DdtreeError(
            f"{key} is {json.dumps(value)}, the lab engine needs {expected}",
            where=str(self.directory / CONFIG),
        )


def read_checkpoint(directory: Path, *, architecture: str) -> Checkpoint:
    """Reads a model directory whose config.json names `architecture`.

    Raises DdtreeError for a missing or damaged file, another architecture, or a tensor type other
    than F32, F16 and BF16.
    """
    if not directory.is_dir():
        raise DdtreeError(
            "no such directory", where=str(directory), mend="give the folder that holds config.json"
        )
    config = read_json(directory / CONFIG)
    named = config.get("architectures")
    if not isinstance(named, list) or architecture not in named:
        raise DdtreeError(
            f"architecture is {json.dumps(named)}, expected {architecture}",
            where=str(directory / CONFIG),
            mend=f"give a {architecture} checkpoint",
        )
    tensors: dict[str, Floats] = {}
    for file in _weight_files(directory):
        tensors.update(_read_safetensors(file))
    return Checkpoint(directory, config, tensors)


def read_json(file: Path) -> dict[str, Any]:
    """The JSON object in `file`; DdtreeError if it is missing or is not one."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unreadable(file, error) from error
    except ValueError as error:
        raise DdtreeError(f"not JSON: {error}", where=str(file), mend=_COPY_AGAIN) from error
    if not isinstance(content, dict):
        raise DdtreeError("not a JSON object", where=str(file), mend=_COPY_AGAIN)
    return content


def _weight_files(directory: Path) -> list[Path]:
    """The single weight file or, where there is an index, all its shards."""
    index = directory / INDEX
    if (directory / WEIGHTS).exists() or not index.exists():
        return [directory / WEIGHTS]
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise DdtreeError("weight_map is missing", where=str(index), mend=_COPY_AGAIN)
    return [directory / str(name) for name in sorted(set(weight_map.values()))]


def _read_safetensors(file: Path) -> dict[str, Floats]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise _unreadable(file, error) from error
    try:
        entries = safetensors.deserialize(content)  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        raise DdtreeError(
            f"truncated or damaged safetensors file ({error})", where=str(file), mend=_COPY_AGAIN
        ) from error
    return {name: _to_float32(file, name, entry) for name, entry in entries}


def _to_float32(file: Path, name: str, entry: Mapping[str, Any]) -> Floats:
    dtype, data, shape = entry["dtype"], entry["data"], entry["shape"]
    if dtype == "F32":
        values = np.frombuffer(data, np.float32).copy()
    elif dtype == "F16":
        values = np.frombuffer(data, np.float16).astype(np.float32)
    elif dtype == "BF16":
        # bfloat16 is the upper half of a float32.
        values = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        raise DdtreeError(
            f"tensor {name} has type {dtype}, the lab engine reads F32, F16 and BF16",
            where=str(file),
            mend="use an unquantised checkpoint",
        )
    return values.reshape(shape)


def _unreadable(file: Path, error: OSError) -> DdtreeError:
    what = "no such file" if isinstance(error, FileNotFoundError) else f"unreadable: {error}"
    return DdtreeError(what, where=str(file), mend=_COPY_AGAIN)
