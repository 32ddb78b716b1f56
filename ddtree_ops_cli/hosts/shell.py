"""Where commands run: what hosts and this machine have in common, and this machine."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from ..errors import DdtreeError
from .dialogue import Dialogue, local


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended."""

    argv: tuple[str, ...]
    exit_code: int
    out: str
    err: str
    began_at: float
    """Seconds since the epoch on this machine's clock, when the command was sent."""
    first_output_at: float | None
    """When its first output was here, at the latest."""


class OutOfTime(DdtreeError):
    """A command did not end in time; it may still be running."""

    def __init__(self, completed: Completed, name: str) -> None:
        super().__init__(
            f"`{shlex.join(completed.argv)}` did not end in time",
            where=f"host {name}",
            mend="it may still be running there",
        )
        self.completed = completed
        """What it had said; its exit code is -1."""


class Shell(Protocol):
    """Where commands run: a host, or this machine."""

    name: str

    def run(
        self, argv: Sequence[str], *, timeout_s: float = ..., stdin: str = ...
    ) -> Completed: ...

    def converse(self, argv: Sequence[str]) -> AbstractContextManager[Dialogue]:
        """Run a command for the time of the context, to be talked with."""
        ...


class ThisMachine:
    """The same interface without a connection."""

    def __init__(self, name: str) -> None:
        self.name = name

    def converse(self, argv: Sequence[str]) -> AbstractContextManager[Dialogue]:
        return local(self.name, argv)

    def run(self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: str = "") -> Completed:
        import subprocess

        began = time.time()
        try:
            done = subprocess.run(
                list(argv), input=stdin.encode(), capture_output=True, timeout=timeout_s
            )
        except subprocess.TimeoutExpired as late:
            so_far = Completed(
                tuple(argv),
                -1,
                decoded(late.stdout or b""),
                decoded(late.stderr or b""),
                began,
                None,
            )
            raise OutOfTime(so_far, self.name) from late
        out, err = decoded(done.stdout), decoded(done.stderr)
        return Completed(tuple(argv), done.returncode, out, err, began, time.time())


def decoded(data: bytes | bytearray) -> str:
    return bytes(data).decode(errors="replace")
