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


def running_companion(
    instances: Sequence[Instance], beside: Instance, against: str
) -> Instance | None:
    """What rollout.companion takes as it is; None where it would have to start one."""
    wanted = (ALGORITHMS[against], beside.labels.model, "running")
    return next(
        (i for i in instances if (i.labels.algorithm, i.labels.model, i.state) == wanted), None
    )


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
