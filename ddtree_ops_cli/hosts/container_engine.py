"""The container engine of a host, from `docker info`; each way in which it fails is named."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from .unknown import Unknown

_CDI_KIND = "nvidia.com/gpu"

Access = Literal["gpus", "cdi"]
"""How a container gets a GPU: `--gpus`, or a CDI device."""

_DOWN = re.compile("cannot connect to the docker daemon|docker.sock: connect: ", re.IGNORECASE)
"""As `docker info` says it, and `docker system dial-stdio`."""


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    version: str
    root: str
    """The folder of images and containers."""
    rootless: bool
    storage_driver: str
    gpu_access: tuple[Access, ...]
    """Empty: no container can have a GPU."""
    cdi_devices: tuple[str, ...] = ()
    """NVIDIA's, by their full names, such as nvidia.com/gpu=0."""


def parse(exit_code: int, text: str, *, hook: bool, cdi: str) -> ContainerEngine | Unknown:
    """`hook`: NVIDIA's hook is on the path; `cdi`: what CDI files of NVIDIA's GPUs say, a line each
    for the file and for each device's name."""
    info = _document(text)
    if exit_code != 0 or not info.get("ServerVersion"):
        return failure(exit_code, " ".join(info.get("ServerErrors") or [text]))
    options = info.get("SecurityOptions") or []
    return ContainerEngine(
        version=str(info["ServerVersion"]),
        root=str(info.get("DockerRootDir", "")),
        rootless=any("rootless" in option for option in options),
        storage_driver=str(info.get("Driver", "")),
        gpu_access=_access(info, hook=hook, cdi_spec=bool(cdi)),
        cdi_devices=_cdi_devices(info, cdi),
    )


def failure(exit_code: int, said: str) -> Unknown:
    """`docker info` ends with 0 even where it reached no daemon: its words tell."""
    said = " ".join(said.split())
    if exit_code == 127:
        return Unknown("Docker is not installed", "install Docker Engine on the host")
    if exit_code in (124, 137):
        return Unknown("Docker does not answer", "see `journalctl -u docker` on the host")
    if "permission denied" in said.lower():
        return Unknown(
            "this user may not use Docker",
            "on the host: `sudo usermod -aG docker USER`, then log in anew; the group is as "
            "powerful as root",
        )
    if _DOWN.search(said):
        return Unknown("Docker is not running", "on the host: `sudo systemctl start docker`")
    return Unknown(f"Docker failed (exit code {exit_code}): {said[:300]}", None)


def _access(info: dict[str, Any], *, hook: bool, cdi_spec: bool) -> tuple[Access, ...]:
    found: list[Access] = []
    if hook or "nvidia" in (info.get("Runtimes") or {}):
        found.append("gpus")
    devices = info.get("DiscoveredDevices") or []
    described = any(str(device.get("ID", "")).startswith("nvidia.com/gpu") for device in devices)
    if info.get("CDISpecDirs") and (cdi_spec or described):
        found.append("cdi")
    return tuple(found)


def _cdi_devices(info: dict[str, Any], cdi: str) -> tuple[str, ...]:
    described = [str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or []]
    written = re.findall(r"""^["']?name["']?: *["']?([^"'\s,}]+)""", cdi, re.MULTILINE)
    found = [*described, *(f"{_CDI_KIND}={name}" for name in written)]
    return tuple(dict.fromkeys(name for name in found if name.startswith(f"{_CDI_KIND}=")))


def _document(text: str) -> dict[str, Any]:
    """The line of JSON among the warnings."""
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            return found if isinstance(found, dict) else {}
    return {}
