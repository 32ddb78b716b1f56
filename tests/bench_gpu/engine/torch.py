"""As much of PyTorch as looking at the visible GPUs takes: they are what the environment names."""

from __future__ import annotations

import os
from types import SimpleNamespace

_visible = [uuid for uuid in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if uuid]

cuda = SimpleNamespace(
    device_count=lambda: len(_visible),
    get_device_properties=lambda index: SimpleNamespace(uuid=_visible[index].removeprefix("GPU-")),
)
