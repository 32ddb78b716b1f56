"""A second service to compare with: one that runs already, or one for the time of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import DdtreeError
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
from .plan import Plan, plan
from .playbook import load


@dataclass(frozen=True, slots=True)
class Companion:
    """Where the second service comes from: it runs, or `start` starts it."""

    service: str
    running: Instance | None = None
    start: Plan | None = None
    in_turns: bool = False
    """`start` replaces the service that it is compared with, because no like GPU is free."""

    @property
    def gpu(self) -> int:
        if self.running is not None:
            return self.running.labels.gpu
        assert self.start is not None
        return self.start.change.new.spec.gpu

    def __str__(self) -> str:
        if self.running is not None:
            return f"{self.running.title}, {self.running.url}"
        if self.in_turns:
            return f"{self.service}, to take turns with it on GPU {self.gpu}"
        return f"{self.service}, to be started on GPU {self.gpu} and stopped after"


def find_companion(
    library: Library,
    host: Loaded[HostProfile],
    runtime: Runtime,
    beside: Instance,
    *,
    service: str,
    may_start: bool,
    may_take_turns: bool = False,
) -> Companion | None:
    """A service of the profile `service` that serves the model of `beside`.

    One that runs is taken as it is. Otherwise, if `may_start`, one on a free like GPU; without
    one, if `may_take_turns`, one in the place of `beside`. None if it is none of these.
    """
    model = beside.labels.model
    algorithm = library.service(service).value.algorithm
    running = _running(runtime.instances(), beside, algorithm=algorithm)
    if running is not None:
        return Companion(service, running=running)
    free = free_gpus(runtime, like=beside.labels.gpu)
    if not may_start or not (free or may_take_turns):
        return None
    gpu = free[0] if free else beside.labels.gpu
    start = prepare(library, host, runtime, Request(service, model, gpu))
    return Companion(service, start=start, in_turns=not free)


def free_gpus(runtime: Runtime, *, like: int) -> list[int]:
    """Those of the same kind without a service, dead ones included, where nobody computes."""
    occupied = {instance.labels.gpu for instance in runtime.instances()} | set(runtime.held())
    kinds = runtime.kinds()
    same = [gpu for gpu, kind in sorted(kinds.items()) if kind == kinds.get(like)]
    return [gpu for gpu in same if gpu not in occupied]


@contextmanager
def present(
    found: Companion, library: Library, host: Loaded[HostProfile], runtime: Runtime
) -> Iterator[Instance]:
    """The companion for the time of the context, Ctrl-C included; for one that is not in turns."""
    if found.start is None:
        assert found.running is not None
        yield found.running
        return
    spec = found.start.change.new.spec
    purpose = f"temporary {spec.service}"
    note(f"starting {spec.service} on GPU {spec.gpu} for the comparison")
    with at_work(runtime, spec.gpu, purpose=purpose) as journal:
        # Somebody may have taken the GPU since it was found free.
        again = prepare(library, host, runtime, Request(spec.service, spec.model, spec.gpu))
        if again.change.previous is not None:
            raise DdtreeError(
                f"GPU {spec.gpu} was taken meanwhile by {again.change.previous.title}",
                where=f"host {host.name}",
                mend="run the command again",
            )
        apply(again, runtime, journal, command=purpose)
    started = select(runtime.instances(), host=host.name, service=spec.service, gpu=spec.gpu)
    try:
        yield started
    finally:
        with (
            shielded(f"stopping {spec.service}"),
            at_work(runtime, spec.gpu, purpose=purpose) as journal,
        ):
            apply(plan(load("forget"), Change(previous=started)), runtime, journal, command=purpose)


def _running(instances: Sequence[Instance], beside: Instance, *, algorithm: str) -> Instance | None:
    wanted = (algorithm, beside.labels.model, "running")
    return next(
        (i for i in instances if (i.labels.algorithm, i.labels.model, i.state) == wanted), None
    )
