"""Ctrl-C: where it is asked for, and work that must be finished once it is begun."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .output.console import warn

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TICK_S = 0.2

# Python raises KeyboardInterrupt in the main thread alone; threads that work on other hosts ask.
_pressed = threading.Event()
_here = threading.local()


@contextmanager
def shielded(what: str) -> Iterator[None]:
    """Run the body to its end, whatever is pressed: half an undo leaves what nobody knows of.

    A handler and not SIG_IGN, which a process started in the body would inherit.
    """
    if threading.current_thread() is not threading.main_thread():
        before = getattr(_here, "shielded", False)
        _here.shielded = True
        try:
            yield
        finally:
            _here.shielded = before
        return
    previous = {
        number: signal.signal(number, lambda *_: warn(f"one moment: {what}")) for number in _SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def deferred() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the body.

    A blocked signal mask would be inherited by a process started in it; a handler is not.
    """
    if threading.current_thread() is not threading.main_thread():
        with shielded(""):
            yield
        check_interrupt()
        return
    pressed: list[int] = []
    previous = {
        number: signal.signal(number, lambda number, _: pressed.append(number))
        for number in _SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if pressed:
        raise KeyboardInterrupt


def interrupt_threads() -> None:
    """Make every thread that is not shielded raise KeyboardInterrupt where it next asks."""
    _pressed.set()


def check_interrupt() -> None:
    """Raise KeyboardInterrupt if it was pressed, in a thread that may be interrupted."""
    if threading.current_thread() is threading.main_thread():
        return
    if _pressed.is_set() and not getattr(_here, "shielded", False):
        raise KeyboardInterrupt


def rest(seconds: float) -> None:
    """Sleep, but not through a Ctrl-C."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        check_interrupt()
        time.sleep(min(left, _TICK_S))
