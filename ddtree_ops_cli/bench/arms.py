"""Which two services are compared, and that they may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import Unhealthy, UsageError
from ..services.selection import select

if TYPE_CHECKING:
    from ..engine_api.answers import ServerInfo
    from ..services.runtimes import Instance
    from .answer import Arm

ALGORITHMS = {"tree": "DDTREE", "linear": "DFLASH", "plain": "none"}
SERVICES = {"linear": "dflash-linear", "plain": "plain"}
"""The service profile of what the tree is compared with."""


def arm_name(instance: Instance) -> str:
    algorithm = instance.labels.algorithm
    return next(name for name, known in ALGORITHMS.items() if known == algorithm)


def choose(
    instances: Sequence[Instance], *, host: str, service: str | None, gpu: int | None, against: str
) -> Instance:
    """The service that is measured against `linear` or `plain`.

    Without `--service` and `--gpu`, the one tree service of the host. UsageError if none or
    several fit, or if it is what it is to be compared with; Unhealthy if its process has ended.
    """
    trees = [i for i in instances if i.labels.algorithm == ALGORITHMS["tree"]]
    named = service is not None or gpu is not None
    chosen = select(instances if named else trees, host=host, service=service, gpu=gpu)
    if chosen.labels.algorithm == ALGORITHMS[against]:
        raise UsageError(
            f"{chosen.title} is {against} itself",
            where=f"host {host}",
            mend="choose a tree service, or another --compare",
        )
    if chosen.state == "dead":
        raise Unhealthy(
            "its process ended", where=chosen.title, mend=f"`ddtree logs {host}` says why"
        )
    return chosen


def no_companion(host: str, beside: Instance, against: str) -> UsageError:
    service, model = SERVICES[against], beside.labels.model
    return UsageError(
        f"no {service} of model {model} runs here, and none can be started for the comparison",
        where=f"host {host}",
        mend=f"`ddtree deploy {host} --service {service} --model {model}` starts one on a free GPU",
    )


def verify_same_model(arms: tuple[Arm, Arm]) -> tuple[ServerInfo, ServerInfo]:
    """Ask both engines what they serve; Unhealthy for an arm that serves something else."""
    first, second = arms
    for arm in arms:
        served = [model.id for model in arm.engine.models()]
        if arm.served_name not in served or arm.served_name != first.served_name:
            raise Unhealthy(
                f"it serves {', '.join(served)}, not {first.served_name}", where=arm.title
            )
    infos = first.engine.server_info(), second.engine.server_info()
    paths = [info.arguments.get("model_path") for info in infos]
    if paths[0] != paths[1]:
        raise Unhealthy(
            f"its target is {paths[1]}, and that of {first.title} is {paths[0]}",
            where=second.title,
        )
    return infos


def doubts(chosen: Instance, info: ServerInfo) -> list[str]:
    """Why the figures of a tree service may not be those of a tree, or not of a right one."""
    found = []
    if chosen.labels.mode == "shadow-linear":
        found.append(f"{chosen.title} verifies only the spine (shadow-linear), not the tree")
    if info.arguments.get("speculative_ddtree_state") == "unsafe":
        found.append(
            f"{chosen.title} lets siblings share recurrent state (unsafe): what it answers, and "
            "how much of its drafts it accepts, may be wrong"
        )
    return found
