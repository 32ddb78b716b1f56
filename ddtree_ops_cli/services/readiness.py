"""From a started process to an engine that is proven to generate.

The order tells the faults apart: process alive, HTTP server up, a token generated, the right
model, a real completion. A container may be up and /health 200 while the scheduler is dead
(sglang issue 6624).
"""

from __future__ import annotations

import time

from ..engine_api.client import EngineClient
from ..errors import Unhealthy
from ..interrupts import rest
from ..output.console import note, warn
from ..output.progress import Progress
from .labels import Labels
from .runtimes import Instance, Runtime

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0


def wait_ready(runtime: Runtime, labels: Labels, *, timeout_s: float, say: Progress) -> None:
    """Returns when the engine has generated a token; raises Unhealthy with the last that was seen.

    A server that starts answers 503 at once, without work; one that is ready generates a token
    for each probe, so the pauses grow.
    """
    begin = time.monotonic()
    pause = _FIRST_PAUSE_S
    instance = _find(runtime, labels)
    with EngineClient(runtime.reach(instance)) as engine:
        while True:
            health = engine.health_generate()
            waited = time.monotonic() - begin
            if health.ready:
                say(f"ready after {waited:.0f} s")
                return
            seen = health.detail if health.status is None else f"HTTP {health.status}"
            if (end := runtime.ended(instance)) is not None:
                raise Unhealthy(
                    f"{end}, after {waited:.0f} s and before it was ready",
                    where=labels.service,
                    mend="its log says why",
                )
            if waited > timeout_s:
                raise Unhealthy(
                    f"not ready after {waited:.0f} s: {seen}",
                    where=labels.service,
                    mend="see its log, or raise ready_timeout_s in the host's profile",
                )
            say(f"{waited:.0f} of {timeout_s:.0f} s, {seen}")
            rest(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)


def verify_identity(runtime: Runtime, labels: Labels, *, say: Progress) -> None:
    """One real completion from the model that was asked for; raises Unhealthy otherwise."""
    with EngineClient(runtime.reach(_find(runtime, labels))) as engine:
        served = [model.id for model in engine.models()]
        if labels.served_name not in served:
            raise Unhealthy(
                f"port {labels.port} serves {', '.join(served)}, not {labels.served_name}",
                where=labels.service,
            )
        answer = engine.chat("Hello.", model=labels.served_name, max_tokens=8)
        if not answer.completion_tokens:
            raise Unhealthy("the first completion is empty", where=labels.service)
        say(f"{answer.completion_tokens} tokens")


def verify_exactness(runtime: Runtime, labels: Labels) -> None:
    """Say what `--allow-hybrid-unsafe` came to: nothing, or output that cannot be trusted."""
    with EngineClient(runtime.reach(_find(runtime, labels))) as engine:
        state = engine.server_info().arguments.get("speculative_ddtree_state")
    if state == "exact":
        note("--allow-hybrid-unsafe has no effect: this engine keeps each node's state exact")
    else:
        warn("hybrid target without exact states: the output reads well and may be wrong")


def _find(runtime: Runtime, labels: Labels) -> Instance:
    for instance in runtime.instances():
        if instance.labels == labels:
            return instance
    raise Unhealthy("it is gone from the host", where=labels.service)
