"""The steps that playbooks are made of: each says what it will do, does it, and can undo it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..errors import DdtreeError
from ..output.progress import Progress
from ..services.labels import Labels
from ..services.runtimes import Instance, Runtime
from ..services.spec import ServiceSpec

_STOP_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Start:
    """A service to be started."""

    spec: ServiceSpec
    labels: Labels
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    port_holder: str | None
    """Who listens on the port already, if anybody."""
    ready_timeout_s: float


@dataclass(frozen=True, slots=True)
class Change:
    """From what runs on a GPU to what shall run there."""

    previous: Instance | None
    start: Start | None

    @property
    def old(self) -> Instance:
        assert self.previous is not None, "this playbook is for a GPU that has a service"
        return self.previous

    @property
    def new(self) -> Start:
        assert self.start is not None, "this playbook is for a service to be started"
        return self.start


class Operation:
    """Reads, unless `changes`; `undo` is called also when `apply` broke off half-way."""

    changes: ClassVar[bool] = False

    def describe(self, change: Change) -> str:
        raise NotImplementedError

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        raise NotImplementedError

    def undo(self, change: Change, runtime: Runtime) -> None:
        """Bring back what was before `apply`."""


class CheckEngine(Operation):
    def describe(self, change: Change) -> str:
        return f"check that the engine can take {change.new.spec.model} with these options"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        runtime.check(change.new.spec)


class CheckPort(Operation):
    def describe(self, change: Change) -> str:
        spec = change.new.spec
        return f"check that {spec.bind}:{spec.port} is free"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        if (holder := change.new.port_holder) is not None:
            spec = change.new.spec
            raise DdtreeError(
                f"port {spec.port} is taken: {holder}",
                where=f"host {spec.host}",
                mend="choose another with --port, or stop what listens there",
            )


class StopPrevious(Operation):
    changes = True

    def describe(self, change: Change) -> str:
        return f"stop {change.old.title} ({change.old.identity})"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        runtime.stop(change.old, grace_s=_STOP_GRACE_S)

    def undo(self, change: Change, runtime: Runtime) -> None:
        old = change.old
        if old.state == "running" and not runtime.alive(old):
            runtime.start(old.labels, old.argv, old.environment)


class StartService(Operation):
    changes = True

    def describe(self, change: Change) -> str:
        spec = change.new.spec
        return f"start {spec.service} on GPU {spec.gpu}, port {spec.port}"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        instance = runtime.start(change.new.labels, change.new.argv, change.new.environment)
        say(instance.identity)

    def undo(self, change: Change, runtime: Runtime) -> None:
        for instance in runtime.instances():
            if instance.labels == change.new.labels:
                runtime.stop(instance, grace_s=_STOP_GRACE_S)


class WaitReady(Operation):
    def describe(self, change: Change) -> str:
        return f"wait until it generates, {change.new.ready_timeout_s:.0f} s at most"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        from ..services.readiness import wait_ready

        wait_ready(runtime, change.new.labels, timeout_s=change.new.ready_timeout_s, say=say)


class VerifyIdentity(Operation):
    def describe(self, change: Change) -> str:
        return f"verify that it serves {change.new.spec.served_name}, with a real completion"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        from ..services.readiness import verify_exactness, verify_identity

        verify_identity(runtime, change.new.labels, say=say)
        if change.new.spec.tree is not None and change.new.spec.tree.allow_hybrid_unsafe:
            verify_exactness(runtime, change.new.labels)


OPERATIONS: Mapping[str, Operation] = {
    "check-engine": CheckEngine(),
    "check-port": CheckPort(),
    "stop-previous": StopPrevious(),
    "start-service": StartService(),
    "wait-ready": WaitReady(),
    "verify-identity": VerifyIdentity(),
}
