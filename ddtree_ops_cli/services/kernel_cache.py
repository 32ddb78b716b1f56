"""The volume in which a container keeps its compiled kernels. Pure.

Compiling them anew costs minutes at each start, so it outlives the container. It belongs to an
image, a GPU architecture and a user: what one user compiled, another could read and not add to.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

# Each library has its own word for where it keeps what it compiled.
_FOLDERS = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "CUDA_CACHE_PATH": "cuda",
}
_ANYBODY = 0o1777


def environment(folder: str) -> Mapping[str, str]:
    return {name: f"{folder}/{below}" for name, below in _FOLDERS.items()}


def volume(image_digest: str, compute_capability: str | None, user: str | None) -> str:
    """Its name; `user` is None for the image's own."""
    architecture = (compute_capability or "unknown").replace(".", "")
    owner = f"-{user.replace(':', '.')}" if user else ""
    return f"ddtree-kernels-{image_digest.removeprefix('sha256:')[:12]}-sm{architecture}{owner}"


def opened(folder: str) -> bytes:
    """A tar archive, from /, that makes the folder one that everybody may write to.

    Docker gives a new volume to the owner of the image's folder of that name, or to root if there
    is none; the engine may be neither.
    """
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as archive:
        entry = tarfile.TarInfo(folder.strip("/"))
        entry.type, entry.mode = tarfile.DIRTYPE, _ANYBODY
        archive.addfile(entry)
    return found.getvalue()
