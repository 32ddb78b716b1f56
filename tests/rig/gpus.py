"""The GPUs that a rig host pretends to have: what nvidia-smi says of them, and their CDI file."""

from __future__ import annotations

import json
from typing import Any

CONTROL = 255
"""The minor number of /dev/nvidiactl; /dev/nvidiaN has N. NVIDIA's major number is 195."""


def uuid(index: int) -> str:
    return f"GPU-0000000{index}-1111-2222-3333-444444444444"


def table(count: int) -> str:
    """/etc/rig-gpus.json of a host with idle GPUs, which nvidia_smi.py and gpu_hook.py read."""
    gpus: list[dict[str, Any]] = [
        {
            "index": str(index),
            "uuid": uuid(index),
            "memory.total": "97887",
            "memory.used": "4",
            "compute_cap": "12.0",
            "driver_version": "580.95.05",
            "mig.mode.current": "Disabled",
            "ecc.mode.current": "Enabled",
            "persistence_mode": "Enabled",
            "power.limit": "600.00 W",
            "power.default_limit": "600.00 W",
            "power.max_limit": "600.00 W",
            "pcie.link.gen.current": "5",
            "pcie.link.width.current": "16",
            "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "apps": [],
        }
        for index in range(count)
    ]
    return json.dumps(gpus, indent=1)


def cdi(count: int) -> str:
    """A CDI file as `nvidia-ctk cdi generate` writes it: each GPU by index and by UUID, and all.

    Source: the Container Device Interface specification, version 0.5.
    """

    def device(name: str, indices: list[int]) -> dict[str, Any]:
        nodes = [{"path": f"/dev/nvidia{index}"} for index in indices]
        return {"name": name, "containerEdits": {"deviceNodes": nodes}}

    each = [device(name, [index]) for index in range(count) for name in (str(index), uuid(index))]
    document = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [*each, device("all", list(range(count)))],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidiactl"}],
        },
    }
    return json.dumps(document, indent=1)
