"""Work that must be finished once it is begun."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..output.console import warn

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def shielded(what: str) -> Iterator[None]:
    """Run the body to its end, whatever is pressed: half an undo leaves what nobody knows of.

    A handler and not SIG_IGN, which a process started in the body would inherit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {
        number: signal.signal(number, lambda *_: warn(f"one moment: {what}")) for number in _SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
