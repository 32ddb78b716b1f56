"""A command that stays up and answers line by line.

It ends when its input ends, which is at the latest when the connection or the process that
started it does: what it holds is never held for somebody who is gone.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..errors import DdtreeError

_CLOSING_S = 10.0


class Ended(DdtreeError):
    """The command is not there any more."""


class Dialogue:
    def __init__(
        self, where: str, send: Callable[[bytes], None], receive: Callable[[float], bytes | None]
    ) -> None:
        """`receive(seconds)` gives what has arrived: b"" at the end, None if nothing came."""
        self._where = where
        self._send = send
        self._receive = receive
        self._unread = b""

    def ask(self, line: str, *, timeout_s: float = 20.0) -> str:
        """Send a line; the line that is answered. Raises Ended, or HostUnreachable."""
        self._send(line.encode() + b"\n")
        return self.hear(timeout_s=timeout_s)

    def hear(self, *, timeout_s: float = 20.0) -> str:
        """The next line."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            got = self._receive(max(0.0, deadline - time.monotonic()))
            if got == b"":
                raise Ended("the command ended without an answer", where=self._where)
            if got is None and time.monotonic() >= deadline:
                raise Ended("no answer in time", where=self._where)
            self._unread += got or b""
        line, self._unread = self._unread.split(b"\n", 1)
        return line.decode(errors="replace")


@contextmanager
def local(name: str, argv: Sequence[str]) -> Iterator[Dialogue]:
    """On this machine. A session of its own: Ctrl-C is for the program that talks, not for it."""
    process = subprocess.Popen(
        list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    source, sink = process.stdout.fileno(), process.stdin.fileno()

    def receive(seconds: float) -> bytes | None:
        ready, _, _ = select.select([source], [], [], seconds)
        return os.read(source, 1 << 16) if ready else None

    def send(data: bytes) -> None:
        try:
            os.write(sink, data)
        except BrokenPipeError as error:
            raise Ended("the command ended", where=f"host {name}") from error

    try:
        yield Dialogue(f"host {name}", send, receive)
    finally:
        process.stdin.close()
        try:
            process.wait(_CLOSING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
