"""What is in an image, as data that is kept beside the project and compared later.

{"format": 1, "image": "sha256:...", "labels": {...}, "python": "3.12.3", "glibc": "2.39",
 "packages": {name: version}, "patch_set": "...", "libraries": {path: ABI facts}}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ProfileError

FORMAT = 1
_PARTS = ("python", "glibc", "patch_set", "changed", "image")
_ABI = ("machine", "needed", "floors", "cxx11", "images")


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference; a side is None where the other alone has it."""

    what: str
    """`package torch`, `library sm100/common_ops.abi3.so: needed`, `label dev.ddtree.patch_set`."""
    first: str | None
    second: str | None


def locked(image: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Pure: Docker's description of an image and the doctor's facts from inside it."""
    libraries = facts["kernels"].get("libraries", {})
    labels = (image.get("Config") or {}).get("Labels") or {}
    return {
        "format": FORMAT,
        "image": image["Id"],
        "layers": list((image.get("RootFS") or {}).get("Layers") or []),
        "labels": dict(sorted(labels.items())),
        "python": facts["system"].get("python"),
        "glibc": facts["system"].get("glibc"),
        "patch_set": facts["patch_set"].get("applied"),
        "changed": facts["patch_set"].get("changed", []),
        "packages": facts["packages"].get("versions", {}),
        "libraries": {
            name: {key: library.get(key) for key in _ABI} for name, library in libraries.items()
        },
    }


def read(file: Path) -> dict[str, Any]:
    """A lock from a file. ProfileError if it is none."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"cannot be read: {error.strerror}", where=str(file)) from error
    except ValueError as error:
        raise ProfileError(f"is not JSON: {error}", where=str(file)) from error
    wanted = {"image", "labels", "packages", "libraries"}
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ProfileError(
            f"is no lock of an image (format {FORMAT})",
            where=str(file),
            mend="`ddtree image lock HOST --output FILE` writes one",
        )
    if missing := sorted(wanted - document.keys()):
        raise ProfileError(f"lacks {', '.join(missing)}", where=str(file))
    return document


def compared(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Drift, ...]:
    """Pure: every difference between two locks; none if the images are one.

    One image has two identities where two hosts keep images differently (see `transfer`): that
    alone is no difference, if all layers are the same.
    """
    if first["image"] == second["image"]:
        return ()
    found = tuple(_drifts(first, second))
    same_layers = first.get("layers") and first.get("layers") == second.get("layers")
    return () if same_layers and [drift.what for drift in found] == ["image"] else found


def _drifts(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Drift]:
    for part in _PARTS:
        yield from _one(part, first.get(part), second.get(part))
    for group, title in (("labels", "label"), ("packages", "package")):
        for name in sorted({*first[group], *second[group]}):
            yield from _one(f"{title} {name}", first[group].get(name), second[group].get(name))
    for name in sorted({*first["libraries"], *second["libraries"]}):
        mine, its = first["libraries"].get(name), second["libraries"].get(name)
        if mine is None or its is None:
            yield Drift(f"library {name}", _there(mine), _there(its))
            continue
        for key in sorted({*mine, *its}):
            yield from _one(f"library {name}: {key}", mine.get(key), its.get(key))


def _one(what: str, first: Any, second: Any) -> Iterator[Drift]:
    if first != second:
        yield Drift(what, _told(first), _told(second))


def _told(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _there(library: object) -> str | None:
    return None if library is None else "there"
