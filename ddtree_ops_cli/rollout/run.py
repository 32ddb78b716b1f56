"""Decide under the lock of the GPU, carry it out, and say what runs then."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import DdtreeError
from ..output.console import note
from ..profiles.load import Loaded
from ..profiles.locate import Library
from ..profiles.schema import HostProfile
from ..services.runtimes import Instance, Runtime
from ..services.selection import select
from .apply import apply, check
from .audit import Run, at_work, history, left_half_done, told
from .deployment import Request, chosen_gpu, prepare, prepare_rollback
from .operations import Change
from .plan import Plan, plan
from .playbook import load


@dataclass(frozen=True, slots=True)
class Outcome:
    plan: Plan
    now: Instance | None
    """What is on the GPU; None for nothing, or if nothing was carried out."""
    refused: DdtreeError | None = None
    """What a dry run found that would stop the plan before it changes anything."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a change is made, whatever it is."""

    dry_run: bool = False
    lock_wait_s: float = 0.0
    why: str = ""
    """In the operator's words, for the lock and the audit log."""

    def purpose(self, command: str, host: str) -> str:
        return f"{command} {host}" + (f" ({self.why})" if self.why else "")


def deploy(
    library: Library, host: Loaded[HostProfile], runtime: Runtime, asked: Request, manner: Manner
) -> Outcome:
    gpu = chosen_gpu(library, host, runtime, asked)
    fixed = asked.on(gpu)
    if manner.dry_run:
        planned = prepare(library, host, runtime, fixed)
        return _tried(planned, runtime)
    purpose = manner.purpose("deploy", host.name)
    with at_work(runtime, gpu, purpose=purpose, wait_s=manner.lock_wait_s) as journal:
        broken = _name_broken(runtime, host.name, gpu)
        planned = prepare(library, host, runtime, fixed)
        if planned.steps or broken:
            apply(planned, runtime, journal, command=purpose)
        return Outcome(planned, _on(runtime, gpu))


def rollback(
    host: Loaded[HostProfile],
    runtime: Runtime,
    *,
    service: str | None,
    gpu: int | None,
    to: str | None,
    manner: Manner,
) -> Outcome:
    if gpu is None:
        current, kept = runtime.instances(), runtime.kept()
        places = {i.labels.gpu: i for i in (*reversed(kept), *current)}
        gpu = select(list(places.values()), host=host.name, service=service, gpu=None).labels.gpu
    if manner.dry_run:
        planned = prepare_rollback(host, runtime, gpu, to=to)
        return _tried(planned, runtime)
    purpose = manner.purpose("rollback", host.name)
    with at_work(runtime, gpu, purpose=purpose, wait_s=manner.lock_wait_s) as journal:
        _name_broken(runtime, host.name, gpu)
        planned = prepare_rollback(host, runtime, gpu, to=to)
        apply(planned, runtime, journal, command=purpose)
        return Outcome(planned, _on(runtime, gpu))


def stop(
    host: Loaded[HostProfile],
    runtime: Runtime,
    *,
    service: str | None,
    gpu: int | None,
    manner: Manner,
) -> Outcome:
    chosen = select(runtime.instances(), host=host.name, service=service, gpu=gpu)
    gpu = chosen.labels.gpu
    if manner.dry_run:
        return Outcome(plan(load("stop"), Change(previous=chosen)), None)
    purpose = manner.purpose("stop", host.name)
    with at_work(runtime, gpu, purpose=purpose, wait_s=manner.lock_wait_s) as journal:
        _name_broken(runtime, host.name, gpu)
        # Somebody may have replaced it before the lock was ours.
        chosen = select(runtime.instances(), host=host.name, service=service, gpu=gpu)
        planned = plan(
            load("stop"), Change(previous=chosen, ready_timeout_s=host.value.ready_timeout_s)
        )
        apply(planned, runtime, journal, command=purpose)
        return Outcome(planned, None)


def _name_broken(runtime: Runtime, host: str, gpu: int) -> Run | None:
    """Say what an earlier command left half done on the GPU, if one did."""
    broken = left_half_done(history(runtime.state), gpu=gpu)
    if broken is not None:
        note(told(broken, host))
    return broken


def _tried(planned: Plan, runtime: Runtime) -> Outcome:
    try:
        check(planned, runtime)
    except DdtreeError as error:
        return Outcome(planned, None, error)
    return Outcome(planned, None)


def _on(runtime: Runtime, gpu: int) -> Instance | None:
    return next((i for i in runtime.instances() if i.labels.gpu == gpu), None)
