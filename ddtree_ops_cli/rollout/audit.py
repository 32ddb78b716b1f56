"""What was done on a host, by whom, step by step: written while it is done, kept on the host.

Each line of `audit.jsonl` is one event of a run, with the host's own time (`at`, UTC). The log is
the journal as well: a run that has no end was cut off, and its last event says where.

    begin     who, command, playbook, gpu, service, before, wants, steps
    step      step, event: begin | done | failed | interrupted | undone | stuck, detail
    end       result: done | failed | interrupted, detail
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import DdtreeError, HostUnreachable
from ..hosts.state import HostState
from ..output.console import warn
from ..services.runtimes import Runtime
from .lock import Lock, LockLost, hold, holders, me

Event = Literal["begin", "done", "failed", "interrupted", "undone", "stuck"]
Result = Literal["done", "failed", "interrupted"]

_READ = r"""
[ ! -e "$dir/audit.jsonl" ] || tail -n "$2" -- "$dir/audit.jsonl"
"""
BUILD = "build"
"""The lock of a host for a build; a GPU's is called gpu-N."""
_COME_BACK_S = 30.0
_LINES = 2000
"""That are read from the end of the log: some hundred runs."""


class Journal:
    """The run that writes itself down."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._run = uuid.uuid4().hex[:8]

    def begin(self, **what: Any) -> None:
        """Raises if it cannot be written: then nothing has been changed yet."""
        self._lock.record({"run": self._run, "kind": "begin", "who": me(), **what})

    def take_again(self, reconnected: ExitStack) -> None:
        """Go on after a cut link, under the same lock taken anew for the time of the stack.

        Raises HostUnreachable if the host does not come back in time, LockHeld if somebody else
        was faster.
        """
        lost = self._lock
        deadline = time.monotonic() + _COME_BACK_S
        while True:
            try:
                self._lock = reconnected.enter_context(
                    hold(lost.state, lost.name, purpose=lost.purpose, wait_s=_COME_BACK_S)
                )
                return
            except HostUnreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1.0)

    def step(self, name: str, event: Event, detail: str = "") -> None:
        """Raises HostUnreachable before anything is undone: the lock went with the link."""
        entry = {"kind": "step", "step": name, "event": event, "detail": detail}
        self._note(entry, forward=event in ("begin", "done", "interrupted"))

    def end(self, result: Result, detail: str = "") -> None:
        self._note({"kind": "end", "result": result, "detail": detail}, forward=result == "done")

    def _note(self, entry: dict[str, Any], *, forward: bool) -> None:
        """A disk that fills up in the middle must not keep a run from its end, nor must anything
        keep it from undoing what it can."""
        try:
            self._lock.record({"run": self._run, **entry})
        except LockLost:
            raise
        except DdtreeError as error:
            if forward and isinstance(error, HostUnreachable):
                raise
            warn(f"not in the audit log: {error}")


@contextmanager
def at_work(runtime: Runtime, gpu: int, *, purpose: str, wait_s: float = 0.0) -> Iterator[Journal]:
    """The lock of a GPU and the journal that is written under it; raises LockHeld."""
    with hold(runtime.state, f"gpu-{gpu}", purpose=purpose, wait_s=wait_s) as lock:
        yield Journal(lock)


@contextmanager
def at_build(state: HostState, *, purpose: str, wait_s: float) -> Iterator[None]:
    """The lock of a host for a build, with its begin and its end in the audit log."""
    with hold(state, BUILD, purpose=purpose, wait_s=wait_s) as lock:
        journal = Journal(lock)
        journal.begin(command=purpose, playbook="build", gpu=None, service=None)
        try:
            yield
        except DdtreeError as error:
            journal.end("failed", str(error))
            raise
        except KeyboardInterrupt:
            journal.end("interrupted")
            raise
        journal.end("done")


@dataclass(frozen=True, slots=True)
class Run:
    """One command's work on a host, as the audit log tells it."""

    run: str
    at: str
    who: str
    command: str
    playbook: str
    gpu: int | None
    service: str | None
    before: str | None
    """What was on the GPU, as the host calls it."""
    result: Result | None
    """None: it has no end in the log; it is going on, or it was cut off."""
    detail: str
    last: str
    """The last step in the log, and how far it came: `wait-ready begin`."""
    events: tuple[dict[str, Any], ...]

    @property
    def lock(self) -> str:
        """The name of the lock that it was done under."""
        return BUILD if self.gpu is None else f"gpu-{self.gpu}"

    @property
    def stuck(self) -> tuple[str, ...]:
        """The steps that it could not undo."""
        return tuple(e["step"] for e in self.events if e.get("event") == "stuck")

    @property
    def half_done(self) -> bool:
        """It left the GPU neither as it was nor as it should be, as far as the log knows."""
        return self.result is None or bool(self.stuck)


def history(state: HostState) -> list[Run]:
    """The latest runs, oldest first. Lines that were cut off by a full disk are left out."""
    done = state.run(_READ, str(_LINES))
    if done.exit_code != 0:
        raise DdtreeError(
            f"the audit log cannot be read: {done.err.strip()}", where=f"host {state.shell.name}"
        )
    return runs_of(done.out.splitlines())


def runs_of(lines: Iterable[str]) -> list[Run]:
    """Pure: lines of the log to runs. A run whose beginning is not among them is left out."""
    events: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        try:
            entry = json.loads(line)
            events.setdefault(entry["run"], []).append(entry)
        except (ValueError, KeyError, TypeError):
            continue
    return [_run(found) for found in events.values() if found[0].get("kind") == "begin"]


def left_half_done(runs: Iterable[Run], *, gpu: int) -> Run | None:
    """The last run on a GPU, if it is. Only for who holds the lock: else it may go on."""
    last = [run for run in runs if run.gpu == gpu][-1:]
    return last[0] if last and last[0].half_done else None


def unfinished(state: HostState) -> list[Run]:
    """The runs that were left half done and not mended since, one a GPU at most."""
    runs = history(state)
    last = {run.gpu: run for run in runs if run.gpu is not None}
    open_ends = [run for run in last.values() if run.half_done]
    held = {holder.name for holder in holders(state) if holder.held} if open_ends else set()
    return [run for run in open_ends if run.lock not in held]


def told(run: Run, host: str) -> str:
    """What was left half done, and how it is mended."""
    how = (
        f"was cut off at {run.last or 'its begin'}"
        if run.result is None
        else f"{run.result} and could not undo {', '.join(run.stuck)}"
    )
    where = f"{host} --gpu {run.gpu}"
    return (
        f"{run.command} by {run.who} at {run.at} {how}; "
        f"`ddtree deploy {where}` or `ddtree rollback {where}` mends it"
    )


def _run(events: list[dict[str, Any]]) -> Run:
    first, end = events[0], events[-1]
    ended = end.get("kind") == "end"
    steps = [e for e in events if e.get("kind") == "step"]
    failed = [e for e in steps if e.get("event") == "failed"]
    return Run(
        run=first["run"],
        at=str(first.get("at", "")),
        who=str(first.get("who", "")),
        command=str(first.get("command", "")),
        playbook=str(first.get("playbook", "")),
        gpu=first.get("gpu"),
        service=first.get("service"),
        before=first.get("before"),
        result=end.get("result") if ended else None,
        detail=str((end if ended else (failed or [{}])[-1]).get("detail", "")),
        last=f"{steps[-1].get('step')} {steps[-1].get('event')}" if steps else "",
        events=tuple(events),
    )
