"""From profiles and flags to one fully decided service. Pure: reads no host."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..profiles.load import Loaded
    from ..profiles.schema import HostProfile, ModelProfile, ServiceProfile

_LAB = Path(__file__).parent.parent / "lab" / "weights"


@dataclass(frozen=True, slots=True)
class Tree:
    budget: int
    """Nodes besides the root."""
    topk_cap: int
    """Candidates per depth."""
    chain_seed: int | None
    """Depth to which the drafter's argmax chain is kept; None leaves it to the engine."""
    mode: str
    allow_hybrid_unsafe: bool


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """How the profile wants the container; a host decides the rest."""

    image: str | None
    """None: the project's own."""
    command: tuple[str, ...]
    restart: str
    shm_size: str
    """Such as 16g."""
    memory: str | None
    ulimits: tuple[tuple[str, int], ...]
    user: str | None
    env: tuple[tuple[str, str], ...]
    mounts: tuple[str, ...]
    """HOST-PATH:CONTAINER-PATH, with :ro behind."""
    kernel_cache: str
    gpu_access: str
    """`auto`, `gpus` or `cdi`."""


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """Everything that is decided before a service starts."""

    host: str
    service: str
    model: str
    gpu: int
    bind: str
    port: int
    served_name: str
    target: str
    """A directory, or a repository id that the engine's own cache resolves."""
    target_revision: str | None
    drafter: str | None
    drafter_revision: str | None
    algorithm: str
    """`none`, `DFLASH` or `DDTREE`."""
    tree: Tree | None
    engine: tuple[tuple[str, str], ...]
    """Engine options that a profile sets, by SGLang's flag name without dashes."""
    extra_args: tuple[str, ...]
    block_size: int | None = None
    """Of the drafter, as the model profile has it."""
    requires: tuple[str, ...] = ()
    """What the engine must have: `patch-set`."""
    container: ContainerSpec | None = None
    """None for the runtime process."""

    @property
    def spec_hash(self) -> str:
        """12 hex digits; equal hashes mean that a redeploy would change nothing."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line says against the profiles; None leaves the profile's value."""

    budget: int | None = None
    port: int | None = None
    allow_hybrid_unsafe: bool = False


def decide(
    host: Loaded[HostProfile],
    service: Loaded[ServiceProfile],
    model: Loaded[ModelProfile],
    gpu: int,
    overrides: Overrides,
) -> ServiceSpec:
    """Raises UsageError where the flags ask for what the profiles cannot give."""
    algorithm = service.value.algorithm
    drafter = model.value.drafter if algorithm != "none" else None
    if algorithm != "none" and drafter is None:
        raise UsageError(
            f"service {service.name} needs a drafter, and model {model.name} has none",
            where=str(model.file),
            mend="name one there, or deploy a service with algorithm: none",
        )
    if algorithm != "DDTREE" and (overrides.budget or overrides.allow_hybrid_unsafe):
        flag = "--budget" if overrides.budget else "--allow-hybrid-unsafe"
        raise UsageError(
            f"{flag} is for a tree, and service {service.name} runs {algorithm}",
            mend="leave it out, or choose a service with algorithm: DDTREE",
        )
    if host.value.runtime == "docker" and model.value.target.startswith("lab:"):
        raise UsageError(
            f"the weights of model {model.name} are inside the package on this machine, and "
            f"{host.name} does not have them",
            where=str(model.file),
            mend=f"copy {_LAB} there, and name its folders in a model profile of your own",
        )
    return ServiceSpec(
        host=host.name,
        service=service.name,
        model=model.name,
        gpu=gpu,
        bind=host.value.bind,
        port=overrides.port or host.value.base_port + gpu,
        served_name=model.value.served_name,
        target=_weights(model.value.target),
        target_revision=model.value.target_revision,
        drafter=_weights(drafter) if drafter else None,
        drafter_revision=model.value.drafter_revision if drafter else None,
        algorithm=algorithm,
        tree=_tree(service.value, overrides) if algorithm == "DDTREE" else None,
        engine=_engine(service.value, model.value),
        extra_args=service.value.engine.extra_args,
        block_size=model.value.block_size if drafter else None,
        requires=service.value.requires,
        container=_container(host.value, service.value),
    )


def _container(host: HostProfile, service: ServiceProfile) -> ContainerSpec | None:
    if host.runtime != "docker":
        return None
    declared = service.container
    return ContainerSpec(
        image=declared.image,
        command=declared.command,
        restart=declared.restart,
        shm_size=declared.shm_size,
        memory=declared.memory,
        ulimits=tuple(sorted(declared.ulimits.items())),
        user=declared.user,
        env=tuple(sorted(declared.env.items())),
        mounts=declared.mounts,
        kernel_cache=declared.kernel_cache,
        gpu_access=host.gpu_access,
    )


def _tree(service: ServiceProfile, overrides: Overrides) -> Tree:
    declared = service.speculative
    return Tree(
        budget=overrides.budget or declared.budget,
        topk_cap=declared.topk_cap,
        chain_seed=declared.chain_seed,
        mode=declared.mode,
        allow_hybrid_unsafe=declared.allow_hybrid_unsafe or overrides.allow_hybrid_unsafe,
    )


def _engine(service: ServiceProfile, model: ModelProfile) -> tuple[tuple[str, str], ...]:
    declared = service.engine.model_dump(exclude={"extra_args"}, exclude_none=True)
    inherited = model.model_dump(
        include={"context_length", "mem_fraction_static"}, exclude_none=True
    )
    options = {**inherited, **declared}
    return tuple((key.replace("_", "-"), str(value)) for key, value in sorted(options.items()))


def _weights(source: str) -> str:
    """A path or repository id; `lab:NAME` is a directory of the pair inside the package."""
    return str(_LAB / source.removeprefix("lab:")) if source.startswith("lab:") else source
