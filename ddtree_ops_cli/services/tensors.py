"""The tensors of a safetensors file, by its header alone. Pure."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import DdtreeError
from .weights import Entry, Header

COPY_AGAIN = "copy this file again"
NOT_THE_FILE = "run `git lfs pull` where it was cloned, or copy the file itself"
_POINTER = b"version "
"""How a Git LFS pointer begins, where eight bytes of length belong."""
# safetensors.torch._TYPES; sizes in bytes, half a byte for packed ones.
_ITEMSIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8,
    "U32": 4, "U16": 2, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F4": 0.5,
    "F6_E2M3": 0.75, "F6_E3M2": 0.75,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    dtype: str
    """As safetensors names it: BF16."""
    count: int
    """Of numbers."""


def loaded_bytes(tensors: Mapping[str, Tensor], *, text_only: bool, halve: bool) -> int:
    """What SGLang holds of a checkpoint: not the layers for its own multi-token prediction, nor the
    image encoder under a text-only class (models/qwen3_5.py), and float32 models halved."""
    sizes = _ITEMSIZES | ({"F32": 2} if halve else {})
    return int(
        sum(
            tensor.count * sizes.get(tensor.dtype, 2)
            for name, tensor in tensors.items()
            if "mtp" not in name and not (text_only and "visual" in name)
        )
    )


def tensors_of(entry: Entry, header: Header | None, *, where: str) -> dict[str, Tensor]:
    """Those that a file holds; raises DdtreeError for one that is cut off, or no such file."""
    start = header.start if header else b""
    if start.startswith(_POINTER):
        raise DdtreeError(
            "this is a Git LFS pointer, not the weights",
            where=where,
            mend=NOT_THE_FILE,
        )
    if header is None or (len(start) < 8 and entry.size >= 8):
        raise DdtreeError(
            "your login may not read it",
            where=where,
            mend=f"on the host: sudo chmod a+r {shlex.quote(entry.path)}",
        )
    if len(start) < 8 or 8 + header.length > entry.size:
        raise DdtreeError(
            f"truncated: its {entry.size} bytes end within the header",
            where=where,
            mend=COPY_AGAIN,
        )
    try:
        described = json.loads(header.text)
        described.pop("__metadata__", None)
        ends = [int(tensor["data_offsets"][1]) for tensor in described.values()]
        found = {
            str(name): Tensor(str(tensor["dtype"]), math.prod(map(int, tensor["shape"])))
            for name, tensor in described.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DdtreeError(
            f"this is no safetensors file ({type(error).__name__} in its header)",
            where=where,
            mend=COPY_AGAIN,
        ) from error
    expected = 8 + header.length + max(ends, default=0)
    if expected != entry.size:
        what = "truncated" if entry.size < expected else "too long"
        raise DdtreeError(
            f"{what}: {entry.size} bytes, its header describes {expected}",
            where=where,
            mend=COPY_AGAIN,
        )
    return found
