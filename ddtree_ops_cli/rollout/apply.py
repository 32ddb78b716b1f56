"""Run a plan and write down each step; undo it when a step fails or Ctrl-C comes."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import takewhile

from ..errors import DdtreeError, HostUnreachable, Interrupted
from ..interrupts import check_interrupt, shielded
from ..output.console import note, warn
from ..output.progress import step
from ..services.boot_log import plain, telling
from ..services.runtimes import Runtime
from .audit import Journal
from .lock import LockLost
from .operations import OPERATIONS, Change
from .plan import Plan

_MEND = (
    "`ddtree status` says what runs; `ddtree deploy` again or `ddtree rollback` ends in a "
    "healthy service"
)
_LINES = 2000
"""Of the log of a start, its end; a traceback in the middle of it is told too."""


def check(plan: Plan, runtime: Runtime) -> None:
    """Take the steps that only look, up to the first that changes the host."""
    for planned in takewhile(lambda planned: not planned.changes, plan.steps):
        with step(planned.does) as say:
            OPERATIONS[planned.operation].apply(plan.change, runtime, say)


def apply(plan: Plan, runtime: Runtime, journal: Journal, *, command: str) -> None:
    """Raises the error of the step that failed, after what was done has been undone.

    Raises Interrupted, which says what runs now, after a Ctrl-C; and LockLost, without an undo,
    if somebody broke the lock: what is on the GPU is theirs now.
    """
    change = plan.change
    journal.begin(
        command=command,
        playbook=plan.playbook,
        gpu=change.gpu,
        service=_service(change),
        before=None if change.previous is None else change.previous.identity,
        wants=None if change.start is None else change.start.spec.spec_hash,
        steps=[planned.operation for planned in plan.steps],
    )
    done: list[str] = []
    try:
        for planned in plan.steps:
            check_interrupt()
            journal.step(planned.operation, "begin", planned.does)
            done.append(planned.operation)
            with step(planned.does) as say:
                OPERATIONS[planned.operation].apply(change, runtime, say)
            journal.step(planned.operation, "done")
    except LockLost:
        raise
    except (DdtreeError, OSError) as error:
        with shielded("undoing what was done"), ExitStack() as reconnected:
            if isinstance(error, HostUnreachable):
                _take_the_lock_again(journal, reconnected, cause=error)
            journal.step(done[-1], "failed", str(error))
            _show_log(change, runtime, started="start-service" in done)
            _undo(done, change, runtime, journal)
            journal.end("failed", str(error))
        raise
    except KeyboardInterrupt as interrupt:
        with shielded("undoing what was done"), ExitStack() as reconnected:
            try:
                for name in done[-1:]:
                    journal.step(name, "interrupted")
            except HostUnreachable as cut:
                _take_the_lock_again(journal, reconnected, cause=cut)
            _undo(done, change, runtime, journal)
            left = _left(runtime)
            journal.end("interrupted", left)
        raise Interrupted(f"interrupted; {left}") from interrupt
    journal.end("done", plan.title)


def _undo(done: list[str], change: Change, runtime: Runtime, journal: Journal) -> None:
    stuck = []
    for name in reversed(done):
        if not OPERATIONS[name].changes:
            continue
        try:
            OPERATIONS[name].undo(change, runtime)
            journal.step(name, "undone")
        except LockLost:
            raise
        except (DdtreeError, OSError) as error:
            warn(f"undoing {name}: {error}")
            journal.step(name, "stuck", str(error))
            stuck.append(name)
    if stuck:
        warn(f"not undone: {', '.join(stuck)}; {_MEND}")


def _take_the_lock_again(
    journal: Journal, reconnected: ExitStack, *, cause: HostUnreachable
) -> None:
    """The lock went with the connection. Without it nothing is undone: another may be at work."""
    try:
        journal.take_again(reconnected)
    except DdtreeError as error:
        host = cause.where or "the host"
        raise HostUnreachable(
            f"{cause.what}; nothing was undone ({error.what})",
            where=host,
            mend=f"when it is back, {_MEND}",
        ) from error


def _show_log(change: Change, runtime: Runtime, *, started: bool) -> None:
    """What of the engine's log tells why, before the undo removes it."""
    if not started or change.start is None:
        return
    try:
        lines = list(runtime.log_lines(change.gpu, last=_LINES, follow=False))
    except (DdtreeError, OSError):
        return  # it never got as far as a log
    if lines:
        note("from the engine's log:")
        for line in telling([plain(line) for line in lines]):
            note(f"  {line}")


def _left(runtime: Runtime) -> str:
    running = [i.title for i in runtime.instances() if i.state == "running"]
    return f"running now: {', '.join(running)}" if running else "nothing runs now"


def _service(change: Change) -> str:
    if change.start is None and change.again is None:
        return change.old.labels.service
    return change.coming.service
