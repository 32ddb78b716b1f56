"""Two services that take turns on one GPU, for the time of a comparison.

The first one runs when it begins, and runs again when it ends, as it was. Whatever ends it (a start
that fails, an engine that dies, Ctrl-C, a cut link) ends so; only what nothing can shield from, a
`kill -9` of the command, leaves the GPU as it is then, and `ddtree rollback` brings back the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import DdtreeError, HostUnreachable
from ..interrupts import shielded
from ..output.console import warn
from ..output.progress import step
from ..profiles.load import Loaded
from ..profiles.schema import HostProfile
from ..services.readiness import verify_identity, wait_ready
from ..services.runtimes import Instance, Runtime
from .apply import apply, check
from .audit import Journal
from .facts import port_holder
from .lock import Lock, LockLost, hold
from .operations import Change
from .plan import Plan, plan
from .playbook import load

_COME_BACK_S = 30.0
"""How long a host whose link was cut is waited for."""


class Turns:
    """Gives the GPU to one service or the other. Each turn is a fresh start, but for the first
    service's first turn: it runs already."""

    def __init__(
        self,
        runtime: Runtime,
        lock: Lock,
        first: Instance,
        start_second: Callable[[], Plan],
        ready_timeout_s: float,
    ) -> None:
        self.lock = lock
        self._runtime = runtime
        self._first = first
        self._start_second = start_second
        self._ready_timeout_s = ready_timeout_s
        self._begun = False
        self._cleared = False

    def first(self) -> Instance:
        if not self._begun:
            self._begun = True
            return self._first
        self._clear()
        return self._start_first()

    def second(self) -> Instance:
        self._begun = True
        self._clear()
        return self._apply(self._start_second())

    def bring_back(self) -> None:
        """The first service on the GPU, as it was; it may be there already."""
        labels = self._first.labels
        there = [i for i in self._on_gpu() if i.labels == labels]
        if not there or self._runtime.ended(there[0]) is not None:
            self._clear()
            self._start_first()
        elif self._cleared:
            with step(f"wait until {self._first.title} generates") as say:
                wait_ready(self._runtime, labels, timeout_s=self._ready_timeout_s, say=say)
                verify_identity(self._runtime, labels, say=say)

    def _start_first(self) -> Instance:
        labels = self._first.labels
        kept = [i for i in self._runtime.kept() if i.labels == labels]
        if not kept:
            raise DdtreeError("it is gone from what was kept")
        holder = port_holder(self._runtime, None, labels.bind, labels.port)
        return self._apply(plan(load("rollback"), self._change(again=kept[0], port_holder=holder)))

    def _clear(self) -> None:
        self._cleared = True
        for instance in self._on_gpu():
            end = "stop" if instance.labels == self._first.labels else "forget"
            apply(
                plan(load(end), self._change(previous=instance)),
                self._runtime,
                Journal(self.lock),
                command=self.lock.purpose,
            )

    def _apply(self, planned: Plan) -> Instance:
        apply(planned, self._runtime, Journal(self.lock), command=self.lock.purpose)
        return self._on_gpu()[0]

    def _change(
        self,
        *,
        previous: Instance | None = None,
        again: Instance | None = None,
        port_holder: str | None = None,
    ) -> Change:
        return Change(
            previous=previous,
            again=again,
            ready_timeout_s=self._ready_timeout_s,
            port_holder=port_holder,
        )

    def _on_gpu(self) -> list[Instance]:
        gpu = self._first.labels.gpu
        return [i for i in self._runtime.instances() if i.labels.gpu == gpu]


@contextmanager
def turns(
    host: Loaded[HostProfile],
    runtime: Runtime,
    first: Instance,
    start_second: Callable[[], Plan],
) -> Iterator[Turns]:
    """Both services' turns on the GPU of `first`, which nobody else can change meanwhile.

    `start_second` plans a start from what is on the GPU now. What can be known to fail is found
    before anything stops. If `first` does not come back, that is what is raised, after what else
    went wrong was said.
    """
    name = f"gpu-{first.labels.gpu}"
    purpose = f"{first.labels.service} and another in turns"
    with hold(runtime.state, name, purpose=purpose) as lock:
        check(start_second(), runtime)
        both = Turns(runtime, lock, first, start_second, host.value.ready_timeout_s)
        try:
            yield both
        except BaseException as error:
            _end(both, host, first, during=error)
            raise
        _end(both, host, first, during=None)


def _end(
    both: Turns, host: Loaded[HostProfile], first: Instance, *, during: BaseException | None
) -> None:
    if isinstance(during, LockLost):
        return  # what is on the GPU is somebody else's now
    try:
        with shielded(f"bringing back {first.title}"):
            _bring_back(both)
    except DdtreeError as error:
        if isinstance(during, DdtreeError):
            warn(str(during))
        raise type(error)(
            f"{first.title} was taken away for the comparison and did not come back: {error}",
            where=f"host {host.name}",
            mend=f"`ddtree rollback {host.name} --gpu {first.labels.gpu}` starts it again",
        ) from error


def _bring_back(both: Turns) -> None:
    """The lock goes with a link that is cut; without it nothing is changed."""
    try:
        both.bring_back()
    except HostUnreachable:
        lost = both.lock
        with hold(lost.state, lost.name, purpose=lost.purpose, wait_s=_COME_BACK_S) as lock:
            both.lock = lock
            both.bring_back()
