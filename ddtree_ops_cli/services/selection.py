"""Which of a host's services a command means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import UsageError
from .runtimes import Instance


def select(
    instances: Sequence[Instance], *, host: str, service: str | None, gpu: int | None
) -> Instance:
    """The one instance that `--service` and `--gpu` leave; UsageError with the list otherwise."""
    left = [
        instance
        for instance in instances
        if service in (None, instance.labels.service) and gpu in (None, instance.labels.gpu)
    ]
    if len(left) == 1:
        return left[0]
    present = ", ".join(instance.title for instance in instances)
    if not left:
        asked = " ".join(
            part
            for part in (
                f"service {service}" if service else "service",
                f"on GPU {gpu}" if gpu is not None else "",
            )
            if part
        )
        raise UsageError(
            f"no {asked} is deployed",
            where=f"host {host}",
            mend=f"there is: {present}" if present else f"`ddtree deploy {host}` starts one",
        )
    raise UsageError(
        f"several services fit: {', '.join(instance.title for instance in left)}",
        where=f"host {host}",
        mend="say which with --service or --gpu",
    )


def place(
    instances: Sequence[Instance], *, host: str, service: str, gpus: int, held: Mapping[int, str]
) -> int:
    """The GPU for a service that names none: the one it is on, else the first free one.

    `held` says what computes on a GPU that this toolkit did not start.
    """
    on = [instance.labels.gpu for instance in instances if instance.labels.service == service]
    if len(on) > 1:
        raise UsageError(
            f"service {service} is on GPUs {', '.join(map(str, sorted(on)))}",
            where=f"host {host}",
            mend="say which with --gpu",
        )
    if on:
        return on[0]
    taken = {instance.labels.gpu for instance in instances}
    free = [gpu for gpu in range(gpus) if gpu not in taken and gpu not in held]
    if not free:
        others = "; ".join(f"GPU {gpu} is held by {who}" for gpu, who in sorted(held.items()))
        raise UsageError(
            f"none of the {gpus} GPUs is free: {others}"
            if held
            else f"each of the {gpus} GPUs has a service",
            where=f"host {host}",
            mend="replace one with --gpu, or `ddtree stop` one first",
        )
    return free[0]
