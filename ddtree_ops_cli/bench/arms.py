"""Which two services are compared, and that they may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import Unhealthy, UsageError
from ..services.selection import select

if TYPE_CHECKING:
    from ..engine_api.answers import ServerInfo
    from ..profiles.load import Loaded
    from ..profiles.schema import HostProfile
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


def no_companion(
    host: Loaded[HostProfile], beside: Instance, against: str, *, free: bool
) -> UsageError:
    """Why there is no second service, and what the operator can do; `free`: a like GPU is."""
    service, model = SERVICES[against], beside.labels.model
    allowed = host.value.temporary_services
    why = [] if allowed else ["its profile has temporary_services: false"]
    why += [] if free else ["no GPU of its kind is free"]
    deploy = f"`ddtree deploy {host.name} --service {service} --model {model}` starts one"
    turns = (
        f"--alternate lets the two take turns on GPU {beside.labels.gpu}, and takes "
        f"{beside.labels.service} away while it is not its turn"
    )
    permit = "" if allowed else "with temporary_services: true, "
    return UsageError(
        f"no {service} of model {model} runs here, and none can be started for the comparison: "
        f"{' and '.join(why)}",
        where=f"host {host.name}",
        mend=f"{deploy} on a free GPU" if free else permit + turns,
    )


def verify_model(arm: Arm, *, like: tuple[Arm, ServerInfo] | None = None) -> ServerInfo:
    """Ask an engine what it serves; Unhealthy if that is not its model, or not that of `like`."""
    first, known = like or (arm, None)
    served = [model.id for model in arm.engine.models()]
    if arm.served_name not in served or arm.served_name != first.served_name:
        raise Unhealthy(f"it serves {', '.join(served)}, not {first.served_name}", where=arm.title)
    info = arm.engine.server_info()
    path = info.arguments.get("model_path")
    if known is not None and path != known.arguments.get("model_path"):
        raise Unhealthy(
            f"its target is {path}, and that of {first.title} is "
            f"{known.arguments.get('model_path')}",
            where=arm.title,
        )
    return info


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
