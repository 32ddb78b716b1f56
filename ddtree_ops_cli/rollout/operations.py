"""The steps that playbooks are made of: each says what it will do, does it, and can undo it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..errors import DdtreeError
from ..output.progress import Progress, step
from ..services.labels import Labels
from ..services.runtimes import Instance, Launch, Runtime
from ..services.spec import ServiceSpec

_STOP_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Start:
    """A service to be started."""

    spec: ServiceSpec
    labels: Labels
    launch: Launch


@dataclass(frozen=True, slots=True)
class Change:
    """From what runs on a GPU to what shall run there: a new service, a kept one, or none."""

    previous: Instance | None
    start: Start | None = None
    again: Instance | None = None
    """A kept service that shall run again."""
    ready_timeout_s: float = 0.0
    gpu_holder: str | None = None
    """What computes already on the GPU that this toolkit did not start, if anything."""
    port_holder: str | None = None
    """Who listens already on the port of what is coming, if anybody."""

    @property
    def old(self) -> Instance:
        assert self.previous is not None, "this playbook is for a GPU that has a service"
        return self.previous

    @property
    def new(self) -> Start:
        assert self.start is not None, "this playbook is for a service to be started"
        return self.start

    @property
    def kept(self) -> Instance:
        assert self.again is not None, "this playbook is for a service that was kept"
        return self.again

    @property
    def coming(self) -> Labels:
        """Of the service that runs at the end."""
        return self.new.labels if self.again is None else self.again.labels

    @property
    def gpu(self) -> int:
        return (self.previous.labels if self.previous is not None else self.coming).gpu


class Operation:
    """Reads, unless `changes`; `undo` is called also when `apply` broke off half-way."""

    changes: ClassVar[bool] = False

    def needed(self, change: Change) -> bool:
        """False leaves the step out of the plan."""
        return True

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


class CheckGpu(Operation):
    def needed(self, change: Change) -> bool:
        # The places of the runtime process are numbered like GPUs, and are none.
        return change.coming.gpu_uuid is not None

    def describe(self, change: Change) -> str:
        return f"check that nobody else computes on GPU {change.gpu}"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        if change.gpu_holder is not None:
            raise DdtreeError(
                f"GPU {change.gpu} is busy: {change.gpu_holder}",
                where=f"host {change.coming.host}",
                mend="choose another with --gpu, or end what computes there",
            )


class CheckPort(Operation):
    def describe(self, change: Change) -> str:
        return f"check that {change.coming.bind}:{change.coming.port} is free"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        if change.port_holder is not None:
            raise DdtreeError(
                f"port {change.coming.port} is taken: {change.port_holder}",
                where=f"host {change.coming.host}",
                mend="choose another with --port, or stop what listens there",
            )


class StopPrevious(Operation):
    changes = True

    def needed(self, change: Change) -> bool:
        return change.previous is not None

    def describe(self, change: Change) -> str:
        return f"stop {change.old.title} ({change.old.identity}) and keep it"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        runtime.retire(change.old, grace_s=_STOP_GRACE_S)

    def undo(self, change: Change, runtime: Runtime) -> None:
        if change.old.state != "running":
            return
        if any(
            i.labels == change.old.labels and runtime.ended(i) is None for i in runtime.instances()
        ):
            return
        # It may have been cut off before it was put aside, or before that was said.
        kept = [i for i in runtime.kept() if i.labels == change.old.labels]
        for left in () if kept else runtime.instances():
            if left.labels == change.old.labels:
                runtime.retire(left, grace_s=_STOP_GRACE_S)
        kept = kept or [i for i in runtime.kept() if i.labels == change.old.labels]
        if not kept:
            raise DdtreeError(f"{change.old.title} ({change.old.identity}) is gone")
        _again(runtime, kept[0], change.ready_timeout_s)


class RemovePrevious(Operation):
    """Has no undo: a temporary service is not started again."""

    changes = True

    def describe(self, change: Change) -> str:
        return f"stop {change.old.title} ({change.old.identity}) and forget it"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        runtime.remove(change.old, grace_s=_STOP_GRACE_S)


class StartService(Operation):
    changes = True

    def describe(self, change: Change) -> str:
        spec = change.new.spec
        return f"start {spec.service} on GPU {spec.gpu}, port {spec.port}"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        instance = runtime.start(change.new.labels, change.new.launch)
        say(instance.identity)

    def undo(self, change: Change, runtime: Runtime) -> None:
        for instance in runtime.instances():
            if instance.labels == change.new.labels:
                runtime.remove(instance, grace_s=_STOP_GRACE_S)


class StartKept(Operation):
    changes = True

    def describe(self, change: Change) -> str:
        return f"start {change.kept.title} ({change.kept.identity}) again"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        say(runtime.revive(change.kept).identity)

    def undo(self, change: Change, runtime: Runtime) -> None:
        for instance in runtime.instances():
            if instance.labels == change.kept.labels:
                runtime.retire(instance, grace_s=_STOP_GRACE_S)


class WaitReady(Operation):
    def describe(self, change: Change) -> str:
        return f"wait until it generates, {change.ready_timeout_s:.0f} s at most"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        from ..services.readiness import wait_ready

        wait_ready(runtime, change.coming, timeout_s=change.ready_timeout_s, say=say)


class VerifyIdentity(Operation):
    def describe(self, change: Change) -> str:
        return f"verify that it serves {change.coming.served_name}, with a real completion"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        from ..services.readiness import verify_exactness, verify_identity

        verify_identity(runtime, change.coming, say=say)
        tree = None if change.start is None else change.start.spec.tree
        if tree is not None and tree.allow_hybrid_unsafe:
            verify_exactness(runtime, change.coming)


class QuickSmoke(Operation):
    def describe(self, change: Change) -> str:
        return "smoke it quickly: answers repeat, and each token is what a fresh prefill says"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        from ..services.readiness import quick_smoke

        quick_smoke(runtime, change.coming, say=say)


class Settle(Operation):
    changes = True

    def needed(self, change: Change) -> bool:
        return (change.coming.restart or "no") != "no"

    def describe(self, change: Change) -> str:
        return f"let Docker start it again when it ends ({change.coming.restart})"

    def apply(self, change: Change, runtime: Runtime, say: Progress) -> None:
        for instance in runtime.instances():
            if instance.labels == change.coming:
                runtime.settle(instance)


def _again(runtime: Runtime, kept: Instance, timeout_s: float) -> None:
    """Start what ran before, and see that it generates as it did."""
    from ..services.readiness import wait_ready

    with step(f"start {kept.title} again") as say:
        again = runtime.revive(kept)
        wait_ready(runtime, kept.labels, timeout_s=timeout_s, say=say)
        runtime.settle(again)


OPERATIONS: Mapping[str, Operation] = {
    "check-engine": CheckEngine(),
    "check-gpu": CheckGpu(),
    "check-port": CheckPort(),
    "stop-previous": StopPrevious(),
    "remove-previous": RemovePrevious(),
    "start-service": StartService(),
    "start-kept": StartKept(),
    "wait-ready": WaitReady(),
    "verify-identity": VerifyIdentity(),
    "quick-smoke": QuickSmoke(),
    "settle": Settle(),
}
