"""Progress of long work, on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .console import messages, speaker

Progress = Callable[[str], None]
"""What a step calls to say how far it is."""


@contextmanager
def step(title: str) -> Iterator[Progress]:
    """Show `title` while the body runs, then one line with the time it took.

    The body's latest detail is shown beside the title on a terminal; a pipe sees the
    closing line alone.
    """
    console = messages()
    begin = time.monotonic()
    detail, whose = "", speaker()

    def say(text: str) -> None:
        nonlocal detail
        detail = text
        if status is not None:
            status.update(f"{title}: {text}")

    # One live line is all that a terminal has; beside other hosts, only what is done is said.
    status = console.status(title) if console.is_terminal and not whose else None
    mark = "[red]✗[/red]"
    try:
        if status is not None:
            status.start()
        yield say
        mark = "[green]✓[/green]"
    finally:
        if status is not None:
            status.stop()
        took = time.monotonic() - begin
        from rich.markup import escape

        told = escape(f"{whose}{title}{': ' + detail if detail else ''} ({took:.1f} s)")
        console.print(f"{mark} {told}")
