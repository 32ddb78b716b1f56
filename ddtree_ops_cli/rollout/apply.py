"""Run a plan; undo it when a step fails or Ctrl-C comes."""

from __future__ import annotations

from itertools import takewhile

from ..errors import DdtreeError, Interrupted
from ..output.console import note, warn
from ..output.progress import step
from ..services.runtimes import Runtime
from .interrupts import shielded
from .operations import OPERATIONS, Change
from .plan import Plan

_TELLING_LINES = 12


def check(plan: Plan, runtime: Runtime) -> None:
    """Take the steps that only look, up to the first that changes the host."""
    for planned in takewhile(lambda planned: not planned.changes, plan.steps):
        with step(planned.does) as say:
            OPERATIONS[planned.operation].apply(plan.change, runtime, say)


def apply(plan: Plan, runtime: Runtime) -> None:
    """Raises the error of the step that failed, after what was done has been undone.

    Raises Interrupted, which says what runs now, after a Ctrl-C.
    """
    done: list[str] = []
    try:
        for planned in plan.steps:
            done.append(planned.operation)
            with step(planned.does) as say:
                OPERATIONS[planned.operation].apply(plan.change, runtime, say)
    except (DdtreeError, OSError):
        with shielded("undoing what was done"):
            _show_log(plan.change, runtime, started="start-service" in done)
            _undo(done, plan.change, runtime)
        raise
    except KeyboardInterrupt as interrupt:
        with shielded("undoing what was done"):
            _undo(done, plan.change, runtime)
            left = _left(runtime)
        raise Interrupted(f"interrupted; {left}") from interrupt


def _undo(done: list[str], change: Change, runtime: Runtime) -> None:
    for name in reversed(done):
        try:
            OPERATIONS[name].undo(change, runtime)
        except (DdtreeError, OSError) as error:
            warn(f"undoing {name}: {error}")


def _show_log(change: Change, runtime: Runtime, *, started: bool) -> None:
    """The engine's last words, before the undo removes who said them."""
    if not started or change.start is None:
        return
    try:
        lines = list(runtime.log_lines(change.start.spec.gpu, last=_TELLING_LINES, follow=False))
    except (DdtreeError, OSError):
        return  # it never got as far as a log
    if lines:
        note("the engine's last lines:")
        for line in lines:
            note(f"  {line}")


def _left(runtime: Runtime) -> str:
    running = [i.title for i in runtime.instances() if i.state == "running"]
    return f"running now: {', '.join(running)}" if running else "nothing runs now"
