"""Which GPUs a library's kernels were compiled for: the images in its section .nv_fatbin.

The section is a row of containers, one for each source file with kernels; each holds images for
several architectures. Layout as `nvcc` 13.0 writes it, seen with -gencode for sm_90a, sm_100,
sm_103a, sm_120f and compute_75 (the published format ends at NVIDIA's `cuobjdump`).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from .elf import Section

_MAGIC = 0xBA55ED50
_PTX, _CUBIN = 1, 2
_EXACT, _FAMILY = 1 << 20, 1 << 21


class Image(NamedTuple):
    """`sm_120a` or `compute_90`: machine code, or PTX that the driver compiles."""

    ptx: bool
    arch: int
    """Major x 10 + minor: 120."""
    variant: str
    """`a`: this architecture alone; `f`: its family; else empty."""

    @property
    def name(self) -> str:
        return f"{'compute' if self.ptx else 'sm'}_{self.arch}{self.variant}"


def parsed(name: str) -> Image:
    """`Image.name` back to an image."""
    kind, _, rest = name.partition("_")
    digits = rest.rstrip("af")
    return Image(kind == "compute", int(digits), rest[len(digits) :])


def runs_on(image: Image, arch: int) -> bool:
    """Whether a GPU of compute capability `arch` (120 for 12.0) can run an image.

    CUDA C++ Programming Guide, "Compute Capabilities" and "Family-Specific Features": machine
    code runs on its major version from its minor version on, PTX is compiled for anything newer;
    `a` is this architecture alone, `f` its family, which is the major version.
    """
    if image.variant == "a":
        return image.arch == arch
    same_major = image.arch // 10 == arch // 10
    if image.ptx and not image.variant:
        return image.arch <= arch
    return same_major and image.arch <= arch


def containers(path: Path, section: Section) -> list[tuple[Image, ...]]:
    """The images of each container, read header by header: sections can have gigabytes."""
    found = []
    with path.open("rb") as file:
        at, end = section.offset, section.offset + section.size
        while at + 16 <= end:
            file.seek(at)
            magic, _, header, size = struct.unpack("<IHHQ", file.read(16))
            if magic != _MAGIC:
                at += 8  # containers are aligned
                continue
            last = at + header + size
            at += header
            images = []
            while at + 64 <= last:
                file.seek(at)
                head = file.read(64)
                kind, _, length, payload = struct.unpack_from("<HHIQ", head)
                (arch,) = struct.unpack_from("<I", head, 28)
                (flags,) = struct.unpack_from("<Q", head, 40)
                if length < 64:
                    raise ValueError(f"an image's header is {length} bytes long")
                variant = "a" if flags & _EXACT else "f" if flags & _FAMILY else ""
                if kind in (_PTX, _CUBIN):
                    images.append(Image(kind == _PTX, arch, variant))
                at += length + payload
            at = last
            if images:
                found.append(tuple(images))
    return found
