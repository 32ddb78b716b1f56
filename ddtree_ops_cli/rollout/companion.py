"""A second service to compare with: one that runs already, or one for the time of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..interrupts import shielded
from ..output.console import note
from ..profiles.load import Loaded
from ..profiles.locate import Library
from ..profiles.schema import HostProfile
from ..services.runtimes import Instance, Runtime
from ..services.selection import select
from .apply import apply
from .audit import at_work
from .deployment import Request, prepare
from .operations import Change
from .plan import plan
from .playbook import load


def find_running(
    instances: Sequence[Instance], beside: Instance, *, algorithm: str
) -> Instance | None:
    """A running instance of this algorithm that serves the model of `beside`."""
    wanted = (algorithm, beside.labels.model, "running")
    return next(
        (i for i in instances if (i.labels.algorithm, i.labels.model, i.state) == wanted), None
    )


@contextmanager
def companion(
    library: Library,
    host: Loaded[HostProfile],
    runtime: Runtime,
    beside: Instance,
    *,
    service: str,
    may_start: bool,
) -> Iterator[Instance | None]:
    """An instance of the profile `service` that serves the model of `beside`.

    One that runs is taken as it is. Otherwise, if `may_start`, one is started on a free GPU and
    stopped at the end, Ctrl-C included. None if there is neither.
    """
    model = beside.labels.model
    wanted = library.service(service).value.algorithm
    running = find_running(runtime.instances(), beside, algorithm=wanted)
    if running is not None:
        yield running
        return
    occupied = {instance.labels.gpu for instance in runtime.instances()}
    occupied |= set(runtime.held())
    free = [gpu for gpu in range(runtime.gpus) if gpu not in occupied]
    if not may_start or not free:
        yield None
        return
    note(f"starting {service} on GPU {free[0]} for the comparison")
    purpose = f"temporary {service}"
    with at_work(runtime, free[0], purpose=purpose) as journal:
        start = prepare(library, host, runtime, Request(service, model, free[0]))
        apply(start, runtime, journal, command=purpose)
    started = select(runtime.instances(), host=host.name, service=service, gpu=free[0])
    try:
        yield started
    finally:
        with (
            shielded(f"stopping {service}"),
            at_work(runtime, free[0], purpose=purpose) as journal,
        ):
            end = plan(load("stop"), Change(previous=started))
            apply(end, runtime, journal, command=purpose)
