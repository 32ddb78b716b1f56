"""Profiles some decode steps of a running server, by SGLang's own /start_profile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import httpx

from ddtree_ops_cli.bench.answer import Arm, Shape
from ddtree_ops_cli.errors import DdtreeError

from .trace import StepProfile, profile_file

_FIRST_EVENTS = 3
"""Of a stream, before profiling begins: the prefill is no decode step."""
_PROMPT = "a long answer, please"

Found = TypeVar("Found")


def profile_server(
    arm: Arm, folder: Path, *, steps: int, most_tokens: int, limit_s: float
) -> StepProfile:
    """Take a trace of `steps` decode steps while one answer is streamed, and read it.

    DdtreeError if no trace came within `limit_s`. The trace is removed.
    """
    deadline = time.monotonic() + limit_s
    begun, ended = threading.Event(), threading.Event()
    load = threading.Thread(target=_stream, args=(arm, most_tokens, begun, ended), daemon=True)
    load.start()
    try:
        if not begun.wait(max(deadline - time.monotonic(), 0)) or ended.is_set():
            raise DdtreeError("no answer ran that could be profiled", where=arm.title)
        _start(arm, folder, steps)
        file = _await(lambda: next(folder.glob("**/*.trace.json.gz"), None), deadline)
        if file is None:
            early = ", and the answer ended first" if ended.is_set() else ""
            raise DdtreeError(
                f"no trace of {steps} steps came within {limit_s:.0f} s{early}", where=arm.title
            )
        found = _await(lambda: _finished(file, steps), deadline)
        if found is None:
            raise DdtreeError("the trace was not finished in time", where=arm.title)
        file.unlink()
    finally:
        load.join(max(deadline - time.monotonic(), 5))
    return found


def _stream(arm: Arm, tokens: int, begun: threading.Event, ended: threading.Event) -> None:
    shape = Shape(tokens, 0.0, {"ignore_eos": True})
    try:
        chunks = arm.engine.chat_stream(
            _PROMPT,
            model=arm.served_name,
            max_tokens=shape.max_tokens,
            temperature=shape.temperature,
            **shape.options,
        )
        for number, _ in enumerate(chunks):
            if number == _FIRST_EVENTS:
                begun.set()
    except DdtreeError:
        pass  # What is missing then is the trace, and that is said.
    finally:
        ended.set()
        begun.set()


def _start(arm: Arm, folder: Path, steps: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    body = {"output_dir": str(folder), "num_steps": steps, "activities": ["CPU", "GPU"]}
    try:
        answer = httpx.post(
            f"{arm.engine.base_url}/start_profile", json=body, timeout=60, trust_env=False
        )
    except httpx.HTTPError as error:
        raise DdtreeError(f"/start_profile: {error}", where=arm.title) from error
    if answer.is_error:
        raise DdtreeError(f"/start_profile: {answer.status_code} {answer.text}", where=arm.title)


def _await(look: Callable[[], Found | None], deadline: float) -> Found | None:
    while time.monotonic() < deadline:
        found = look()
        if found is not None:
            return found
        time.sleep(0.5)
    return None


def _finished(file: Path, steps: int) -> StepProfile | None:
    """None while the server still writes it. DdtreeError for a trace without device work.

    In a process of its own: to read millions of events would hold up the streams that another
    thread of this one is timing.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(profile_file, file, steps).result()
