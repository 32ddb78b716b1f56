"""The same work on many hosts at once: for each a result, or the error that kept it from one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ..errors import DdtreeError, Interrupted, SomeHostsFailed
from ..interrupts import interrupt_threads, shielded
from ..output.console import speaking_of

Target = TypeVar("Target")
Result = TypeVar("Result")

MAX_PARALLEL = 16


def each(
    targets: Mapping[str, Target | DdtreeError],
    work: Callable[[Target], Result],
    *,
    max_parallel: int = MAX_PARALLEL,
    max_failures: int | None = None,
) -> dict[str, Result | DdtreeError]:
    """Results in the order of `targets`; a target that is an error already stays one.

    After `max_failures` errors no further host is begun. After a Ctrl-C none is either, and those
    that were begun undo what they did before this returns; their result is Interrupted. What is
    said meanwhile carries the host's name, unless there is only one.
    """
    stop = threading.Event()
    failed: list[str] = []

    def attempt(name: str, target: Target | DdtreeError) -> Result | DdtreeError:
        if stop.is_set():
            return DdtreeError("not begun", where=f"host {name}")
        try:
            if isinstance(target, DdtreeError):
                raise target
            with speaking_of(name if len(targets) > 1 else None):
                return work(target)
        except DdtreeError as error:
            failed.append(name)
            if max_failures is not None and len(failed) >= max_failures:
                stop.set()
            return error
        except KeyboardInterrupt:
            return Interrupted("interrupted before anything was changed", where=f"host {name}")

    if len(targets) == 1:
        # Here Ctrl-C reaches the work itself.
        [(name, target)] = targets.items()
        if isinstance(target, DdtreeError):
            return {name: target}
        try:
            return {name: work(target)}
        except DdtreeError as error:
            return {name: error}
    with ThreadPoolExecutor(max_workers=max_parallel) as pool:
        begun = {name: pool.submit(attempt, name, target) for name, target in targets.items()}
        try:
            return _results(begun)
        except KeyboardInterrupt:
            stop.set()
            interrupt_threads()
            with shielded("each host undoes what was done"):
                return _results(begun)


def conclude(found: Mapping[str, object], *, mend: str | None = None) -> None:
    """Raise what the exit code tells of the results: the one host's error, or that some failed."""
    errors = {name: error for name, error in found.items() if isinstance(error, DdtreeError)}
    if len(found) == 1:
        for error in errors.values():
            raise error
    if any(isinstance(error, Interrupted) for error in errors.values()):
        raise Interrupted("interrupted")
    if errors:
        raise SomeHostsFailed(
            f"{len(errors)} of {len(found)} hosts failed: {', '.join(errors)}",
            mend=mend,
        )


def _results(begun: Mapping[str, Future[Result | DdtreeError]]) -> dict[str, Result | DdtreeError]:
    return {name: future.result() for name, future in begun.items()}
