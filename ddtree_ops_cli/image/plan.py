"""What a build will do on a host. Pure: context and facts in, steps and refusals out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DdtreeError
from ..hosts.container_engine import ContainerEngine
from ..hosts.facts import HostFacts
from ..hosts.gpus import Gpu
from ..hosts.unknown import Unknown
from .recipe import Recipe

_GIB = 1 << 30
_LOCKED_BYTES = 40 * _GIB
"""An estimate: CUDA's development image, the packages once while they are installed and once in the
image, and pip's own copies on the way."""
_COPIES = 4
"""Of the context: Docker's own, the layer it is copied to, its environment and the image."""
_NEEDS_GPU = "driver-answers"
"""The check that fails in an image which was given no GPU."""
_LOCKED_FOR = "x86_64"
"""What docker/requirements.txt was resolved for."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class BuildPlan:
    host: str
    recipe: Recipe
    context_digest: str
    context_bytes: int
    context_files: int
    arguments: Mapping[str, str]
    """Build arguments of the Dockerfile."""
    needed_bytes: int
    gpu: Gpu | None
    """With which the fresh image is tried."""
    device: Mapping[str, Any] | None
    """How its container asks Docker for that GPU."""
    intent: Mapping[str, Any]
    """What the doctor checks the fresh image for."""

    @property
    def steps(self) -> tuple[str, ...]:
        recipe = self.recipe
        gpu = "no GPU, since none is idle" if "no_gpu" in self.intent else "no GPU"
        if self.gpu:
            gpu = f"GPU {self.gpu.index} ({self.gpu.uuid})"
        but = f", but for {', '.join(recipe.accepted)}" if recipe.accepted else ""
        return (
            f"send {self.context_files} files, {self.context_bytes / 1e6:.1f} MB, as context "
            f"{self.context_digest[:12]}",
            f"build on {recipe.base} with packages: {recipe.packages}, "
            f"compute capability {recipe.cuda_archs}",
            f"run the doctor in the image with {gpu}; every blocking check must pass{but}",
            f"tag {recipe.tag}",
        )


def plan(
    host: str,
    recipe: Recipe,
    *,
    digest: str,
    size: int,
    files: int,
    labels: Mapping[str, str],
    facts: HostFacts,
    base: Mapping[str, Any] | None,
    lock: Mapping[str, str],
    wheel: str,
) -> BuildPlan:
    """`labels` are build arguments that become labels; `base` is Docker's description of the base
    image if the host has it; `lock` the versions that the image must have, empty if it is the
    base that says which; `wheel` the name of SGLang's wheel in the context.

    Raises DdtreeError where the build cannot end well: no Docker, no space, a base, wheel or lock
    for another architecture, no GPU that a container can have.
    """
    where = f"host {host}"
    if isinstance(facts.engine, Unknown):
        raise DdtreeError(facts.engine.what, where=where, mend=facts.engine.mend)
    _refuse_other_processor(facts, recipe, wheel, where)
    if base is not None:
        refuse_other_architecture(facts, f"the base {recipe.base}", base, where=where)
    needed = _COPIES * size + (_LOCKED_BYTES if recipe.packages == "locked" else 0)
    refuse_full_disk(facts, needed, to="the build", where=where)
    gpus = () if isinstance(facts.gpus, Unknown) else facts.gpus
    arguments = {
        "BASE": recipe.base,
        "PACKAGES": recipe.packages,
        "CUDA_ARCHS": recipe.cuda_archs,
        "DEEPGEMM": "0" if recipe.cuda_archs.startswith("12.") else "1",
        "CONTEXT": digest,
        **labels,
    }
    gpu = chosen_gpu(gpus, facts.engine)
    meant = meant_gpu(gpu, gpus, facts.engine)
    if not meant and _NEEDS_GPU not in recipe.accepted:
        raise _without_gpu(facts, where)
    return BuildPlan(
        host=host,
        recipe=recipe,
        context_digest=digest,
        context_bytes=size,
        context_files=files,
        arguments=arguments,
        needed_bytes=needed,
        gpu=gpu,
        device=device_request(gpu, facts.engine) if gpu else None,
        intent={
            "patch_set": labels["PATCH_SET"],
            "arch": recipe.arch,
            **({"lock": dict(lock)} if lock else {}),
            **meant,
        },
    )


def _without_gpu(facts: HostFacts, where: str) -> DdtreeError:
    """Said before the build, since the doctor would refuse the image after it."""
    if isinstance(facts.gpus, Unknown):
        what = facts.gpus.what
    elif not facts.gpus:
        what = "it has no GPU"
    else:
        what = "no container of this host can have a GPU: the NVIDIA container toolkit is missing"
    return DdtreeError(
        f"{what}, so the doctor could not try the image",
        where=where,
        mend=f"mend that, or build it untried for another host: `--accept {_NEEDS_GPU}`",
    )


def chosen_gpu(gpus: Sequence[Gpu], engine: ContainerEngine) -> Gpu | None:
    """The first idle GPU: a trial takes memory that a service counts on. None if there is none, or
    no container can have one."""
    idle = [gpu for gpu in gpus if not gpu.holders]
    return idle[0] if idle and engine.gpu_access else None


def meant_gpu(gpu: Gpu | None, gpus: Sequence[Gpu], engine: ContainerEngine) -> dict[str, Any]:
    """For the doctor in a container: which GPU it should see, or why it sees none."""
    if gpu is not None:
        return {"gpu_uuid": gpu.uuid}
    if gpus and engine.gpu_access:
        return {"no_gpu": "every GPU of the host is in use, so none was taken for this look"}
    return {}


def device_request(gpu: Gpu, engine: ContainerEngine) -> dict[str, Any]:
    """One GPU for a container, in the words of Docker's API."""
    if "gpus" in engine.gpu_access:
        return {"Driver": "nvidia", "DeviceIDs": [gpu.uuid], "Capabilities": [["gpu"]]}
    names = (f"nvidia.com/gpu={gpu.uuid}", f"nvidia.com/gpu={gpu.index}")
    described = next((name for name in names if name in engine.cdi_devices), names[0])
    return {"Driver": "cdi", "DeviceIDs": [described]}


def _refuse_other_processor(facts: HostFacts, recipe: Recipe, wheel: str, where: str) -> None:
    """What was compiled for another processor than the host's installs there, and then crashes."""
    if isinstance(facts.system, Unknown):
        return
    here = facts.system.architecture
    if recipe.packages == "locked" and here != _LOCKED_FOR:
        raise DdtreeError(
            f"the locked packages are for {_LOCKED_FOR}; the host is {here}",
            where=where,
            mend="start from an image for it that has the packages: --base IMAGE --packages base",
        )
    its = next((a for a in _ARCHITECTURES if wheel.endswith(f"_{a}.whl")), here)
    if its != here:
        raise DdtreeError(
            f"SGLang's wheel {wheel} is for {its}; the host is {here}",
            where=where,
            mend=f"fetch the wheel for {here} and give it with --wheel FILE",
        )


def refuse_other_architecture(
    facts: HostFacts, what: str, image: Mapping[str, Any], *, where: str
) -> None:
    """Raises DdtreeError where an image, as Docker describes it, is for another processor."""
    if isinstance(facts.system, Unknown):
        return
    here = _ARCHITECTURES.get(facts.system.architecture, facts.system.architecture)
    its = str(image.get("Architecture") or here)
    if its != here:
        raise DdtreeError(
            f"{what} is for {its}; the host is {here}",
            where=where,
            mend=f"take one for {here}: `docker pull --platform linux/{here}`",
        )


def refuse_full_disk(facts: HostFacts, needed: int, *, to: str, where: str) -> None:
    """Raises DdtreeError where Docker's folder has less than `needed` bytes free.

    Not where the host does not say how much it has.
    """
    engine, disks = facts.engine, facts.disks
    if isinstance(engine, Unknown) or isinstance(disks, Unknown):
        return
    # The longest mount point that Docker's folder lies under.
    mounts = [d for d in disks if f"{engine.root}/".startswith(d.mount.rstrip("/") + "/")]
    if not mounts:
        return
    disk = max(mounts, key=lambda disk: len(disk.mount))
    if disk.free_bytes < needed:
        raise DdtreeError(
            f"{disk.mount} has {disk.free_bytes / _GIB:.1f} GiB free for {engine.root}; {to} "
            f"needs about {needed / _GIB:.1f}",
            where=where,
            mend="`ddtree image prune --cache` removes images that nothing uses and what earlier "
            "builds left",
        )
