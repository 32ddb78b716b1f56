"""The two streams: data goes to stdout, everything said about it to stderr.

Rich renders colour only on a terminal and honours NO_COLOR; piped output is plain text of
unlimited width, so that `ddtree status | grep ddtree` sees whole rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 250


def data() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return Console(file=sys.stdout, highlight=False, emoji=False, soft_wrap=False, width=width)


def messages() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)


_speaker: ContextVar[str | None] = ContextVar("speaker", default=None)


@contextmanager
def speaking_of(host: str | None) -> Iterator[None]:
    """Begin every message of this thread with the host that it is about."""
    before = _speaker.set(host)
    try:
        yield
    finally:
        _speaker.reset(before)


def speaker() -> str:
    """`ct200: ` while several hosts are worked on at once, else nothing."""
    host = _speaker.get()
    return f"{host}: " if host else ""


def note(text: str) -> None:
    """One line about what is happening."""
    messages().print(f"{speaker()}{text}", markup=False)


def warn(text: str) -> None:
    messages().print(f"{speaker()}warning: {text}", style="yellow", markup=False)


def fail(text: str) -> None:
    messages().print(f"error: {text}", style="bold red", markup=False)
