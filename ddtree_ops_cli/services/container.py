"""What a service's container is. Pure: spec, image and facts in, everything for Docker out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..errors import DdtreeError
from . import kernel_cache
from .sglang_args import SGLANG_VERSION, engine_args
from .spec import ContainerSpec, ServiceSpec

if TYPE_CHECKING:
    from ..hosts.container_engine import Access, ContainerEngine
    from ..hosts.gpus import Gpu

PROJECT_IMAGE = f"ddtree/sglang:{SGLANG_VERSION}"
"""What a service runs whose profile names no image."""
ENGINE_LABEL = "dev.ddtree.engine"
"""Of an image: what it starts, with the version."""
PATCH_SET_LABEL = "dev.ddtree.patch_set"
"""Of an image: the hash of the patch set that is in it."""

_EVERYWHERE = "0.0.0.0"
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, slots=True)
class Image:
    """An image that a host has."""

    reference: str
    """What the profile calls it."""
    digest: str
    """sha256:..., which is the same on every host that has this image."""
    labels: Mapping[str, str]
    user: str | None
    """Who its processes are, in Docker's form; None is root."""

    @property
    def patch_set(self) -> str | None:
        return self.labels.get(PATCH_SET_LABEL)


@dataclass(frozen=True, slots=True)
class Mount:
    kind: Literal["bind", "volume"]
    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Container:
    """Everything that `docker create` is told."""

    name: str
    image: str
    """What the profile calls it; `image_digest` is what is started."""
    image_digest: str
    patch_set: str | None
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]
    gpu_uuid: str
    gpu_access: Access
    gpu_device: str
    """The UUID, or the name of a CDI device."""
    bind: str
    port: int
    """The same on the host and inside."""
    shm_bytes: int
    memory_bytes: int | None
    """Of the host; None is no limit."""
    ulimits: Mapping[str, int]
    user: str | None
    restart: str
    """In force once the service is proven; until then it stays down when it ends."""


def container_name(gpu: int) -> str:
    """One service a GPU: two with the same name cannot be."""
    return f"ddtree-gpu{gpu}"


def image_reference(spec: ServiceSpec) -> str:
    return _declared(spec).image or PROJECT_IMAGE


def define(
    spec: ServiceSpec, image: Image, gpu: Gpu, engine: ContainerEngine, *, hub: str | None
) -> Container:
    """`hub` is the host's Hugging Face cache, for weights that are named by an id.

    Raises DdtreeError if no container of this host can have the GPU.
    """
    declared = _declared(spec)
    access, device = _device(declared.gpu_access, gpu, engine, host=spec.host)
    caches = kernel_cache.environment(declared.kernel_cache)
    kernels = kernel_cache.volume(image.digest, gpu.compute_capability, declared.user)
    return Container(
        name=container_name(spec.gpu),
        image=image.reference,
        image_digest=image.digest,
        patch_set=image.patch_set,
        argv=(*declared.command, *engine_args(spec, listen=_EVERYWHERE)),
        environment={**caches, **_hub_environment(hub), **dict(declared.env)},
        mounts=(
            *_weights(spec, hub),
            *map(_mount, declared.mounts),
            Mount("volume", kernels, declared.kernel_cache, False),
        ),
        gpu_uuid=gpu.uuid,
        gpu_access=access,
        gpu_device=device,
        bind=spec.bind,
        port=spec.port,
        shm_bytes=_bytes(declared.shm_size),
        memory_bytes=_bytes(declared.memory) if declared.memory else None,
        ulimits=dict(declared.ulimits),
        user=declared.user,
        restart=declared.restart,
    )


def require(spec: ServiceSpec, image: Image) -> None:
    """Raises DdtreeError for an image without what the service needs."""
    if "patch-set" in spec.requires and image.patch_set is None:
        raise DdtreeError(
            f"service {spec.service} requires the patch set, and image {image.reference} has none "
            f"(no label {PATCH_SET_LABEL})",
            where=f"host {spec.host}",
            mend="build the image with the patch set, or name another as container.image",
        )


def to_api(container: Container, labels: Mapping[str, str]) -> dict[str, Any]:
    """The body of POST /containers/create (Docker Engine API 1.41 and later)."""
    port = f"{container.port}/tcp"
    return {
        "Image": container.image_digest,
        "Cmd": list(container.argv),
        "Env": [f"{name}={value}" for name, value in sorted(container.environment.items())],
        "Labels": dict(labels),
        "ExposedPorts": {port: {}},
        **({"User": container.user} if container.user else {}),
        "HostConfig": {
            "PortBindings": {port: [{"HostIp": container.bind, "HostPort": str(container.port)}]},
            "DeviceRequests": [_device_request(container)],
            "Mounts": [
                {
                    "Type": mount.kind,
                    "Source": mount.source,
                    "Target": mount.target,
                    "ReadOnly": mount.read_only,
                }
                for mount in container.mounts
            ],
            "ShmSize": container.shm_bytes,
            "Ulimits": [
                {"Name": name, "Soft": limit, "Hard": limit}
                for name, limit in sorted(container.ulimits.items())
            ],
            **({"Memory": container.memory_bytes} if container.memory_bytes else {}),
            "RestartPolicy": {"Name": "no"},
        },
    }


def _declared(spec: ServiceSpec) -> ContainerSpec:
    assert spec.container is not None, "decide() gives each service of a docker host one"
    return spec.container


def _device(wanted: str, gpu: Gpu, engine: ContainerEngine, *, host: str) -> tuple[Access, str]:
    names = (f"nvidia.com/gpu={gpu.uuid}", f"nvidia.com/gpu={gpu.index}")
    described = next((name for name in names if name in engine.cdi_devices), None)
    if wanted != "gpus" and described is not None and "cdi" in engine.gpu_access:
        return "cdi", described
    if wanted != "cdi" and "gpus" in engine.gpu_access:
        return "gpus", gpu.uuid
    if "cdi" in engine.gpu_access:
        raise DdtreeError(
            f"no CDI file describes GPU {gpu.index} ({gpu.uuid})",
            where=f"host {host}",
            mend="there: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
        )
    raise DdtreeError(
        f"no container can have a GPU by {wanted}"
        if wanted != "auto" and engine.gpu_access
        else "no container can have a GPU",
        where=f"host {host}",
        mend="install the NVIDIA container toolkit there"
        if not engine.gpu_access
        else f"set gpu_access in its profile to {engine.gpu_access[0]}",
    )


def _bytes(size: str) -> int:
    return int(size[:-1]) * _UNITS[size[-1]]


def _device_request(container: Container) -> dict[str, Any]:
    if container.gpu_access == "cdi":
        return {"Driver": "cdi", "DeviceIDs": [container.gpu_device]}
    return {
        "Driver": "nvidia",
        "DeviceIDs": [container.gpu_device],
        "Capabilities": [["gpu"]],
    }


def _hub_environment(hub: str | None) -> dict[str, str]:
    """The weights are on the host, as was checked: the engine need not ask the network."""
    return {"HF_HUB_CACHE": hub, "HF_HUB_OFFLINE": "1"} if hub else {}


def _weights(spec: ServiceSpec, hub: str | None) -> tuple[Mount, ...]:
    """Under the same path as on the host, so that the command line says where they are."""
    folders = [path for path in (spec.target, spec.drafter, hub) if path and path.startswith("/")]
    return tuple(Mount("bind", path, path, True) for path in dict.fromkeys(folders))


def _mount(text: str) -> Mount:
    source, target, *mode = text.split(":")
    return Mount("bind", source, target, mode == ["ro"])
