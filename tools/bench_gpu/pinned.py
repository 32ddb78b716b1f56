"""Two services on a GPU each: what each sees, and what the death of one does to the other."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddtree_ops_cli.engine_api.answers import Completion
from ddtree_ops_cli.errors import DdtreeError, Unhealthy

from . import devices
from .running import Running

_LOOK = (
    "import torch; "
    "print(*(torch.cuda.get_device_properties(i).uuid for i in range(torch.cuda.device_count())))"
)
_LOOK_S = 60
_FREED_S = 20.0
_PROMPT = "Write a Python function that merges two sorted lists, and explain it."
_TOKENS = 192
_AROUND_S = 1.0
"""How long the other service is asked before and after the kill."""


def sight(services: Sequence[Running], sglang: Path) -> dict[str, Any]:
    """Of each service: the GPUs that its environment shows to PyTorch, and where it holds memory.

    DdtreeError if that is not exactly its own.
    """
    found: dict[str, Any] = {}
    holders = devices.holders()
    for running in services:
        service = running.service
        own = service.device.uuid
        done = subprocess.run(
            [sys.executable, "-c", _LOOK],
            env=service.environment(os.environ, sglang),
            capture_output=True,
            text=True,
            timeout=_LOOK_S,
            check=False,
        )
        visible = [f"GPU-{uuid.removeprefix('GPU-')}" for uuid in done.stdout.split()]
        pids = running.pids()
        holding = [
            uuid for uuid, processes in holders.items() if any(one.pid in pids for one in processes)
        ]
        found[service.title] = {"own": own, "visible": visible, "holds_memory_on": holding}
        if visible != [own] or holding not in ([own], []):
            raise DdtreeError(
                f"it should see {own} alone; it sees {visible} and holds memory on {holding}: "
                f"{done.stderr[-300:]}",
                where=service.title,
            )
    return found


def survive(kept: Running, *, killed: Running) -> dict[str, Any]:
    """Kill one service while the other answers. Unhealthy if that shows in the other's answers."""
    before = _ask(kept)
    used_before = devices.used_gib()
    answers: list[Completion] = []
    errors: list[DdtreeError] = []
    enough = threading.Event()

    def ask() -> None:
        try:
            while not enough.is_set():
                answers.append(_ask(kept))
        except DdtreeError as error:
            errors.append(error)

    load = threading.Thread(target=ask)
    load.start()
    try:
        time.sleep(_AROUND_S)
        killed.kill()
        time.sleep(_AROUND_S)
    finally:
        enough.set()
        load.join()
    if errors:
        raise Unhealthy(f"its answer broke off: {errors[0]}", where=kept.service.title)
    after = _ask(kept)
    if {answer.text for answer in (*answers, after)} != {before.text}:
        raise Unhealthy("its answer changed", where=kept.service.title)
    if not kept.engine.health_generate().ready or kept.process.poll() is not None:
        raise Unhealthy("it is no longer healthy", where=kept.service.title)
    if killed.engine.health().status is not None:
        raise Unhealthy("it still answers", where=killed.service.title)
    return {
        "killed": killed.service.title,
        "answers_of": kept.service.title,
        "answer_tokens": after.completion_tokens,
        "answers": len(answers),
        "used_gib_before": used_before,
        "used_gib_after": _freed(killed.service.device.uuid, used_before),
    }


def _ask(running: Running) -> Completion:
    return running.engine.chat(
        _PROMPT, model=running.service.model.name, max_tokens=_TOKENS, temperature=0.0
    )


def _freed(uuid: str, before: dict[str, float]) -> dict[str, float]:
    """Memory in use once that of the killed service is given back, or after a while."""
    deadline = time.monotonic() + _FREED_S
    while True:
        now = devices.used_gib()
        if now[uuid] < before[uuid] or time.monotonic() > deadline:
            return now
        time.sleep(0.5)
