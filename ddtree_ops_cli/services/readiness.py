"""From a started process to an engine that is proven to generate.

The order tells the faults apart: process alive, HTTP server up, a token generated, the right
model, a real completion. A container may be up and /health 200 while the scheduler is dead
(sglang issue 6624).
"""

from __future__ import annotations

import time

from ..engine_api.answers import Health
from ..engine_api.client import EngineClient
from ..errors import DdtreeError, Unhealthy
from ..interrupts import rest
from ..output.console import note, warn
from ..output.progress import Progress
from .boot_log import plain
from .labels import Labels
from .runtimes import Instance, Runtime

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_WORDS = 120
"""Characters of a log's line that are shown beside the time."""


def wait_ready(runtime: Runtime, labels: Labels, *, timeout_s: float, say: Progress) -> None:
    """Returns when the engine has generated a token; raises Unhealthy with the last that was seen.

    A server that starts answers 503 at once, without work; one that is ready generates a token
    for each probe, so the pauses grow. One that does not answer is waited for longer than it
    allows itself (`PROBE_SECONDS`), so that probes do not pile up in it.
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
            if (end := runtime.ended(instance)) is not None:
                raise Unhealthy(
                    f"{end}, after {waited:.0f} s and before it was ready",
                    where=instance.title,
                    mend="its log says why",
                )
            if waited > timeout_s:
                raise Unhealthy(
                    f"not ready after {waited:.0f} s: {_stuck(engine, health)}",
                    where=instance.title,
                    mend="see its log, or raise ready_timeout_s in the host's profile",
                )
            say(f"{waited:.0f} of {timeout_s:.0f} s, {_seen(health)}{_last_words(runtime, labels)}")
            rest(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)


def _seen(health: Health) -> str:
    return "no answer yet" if health.status is None else f"HTTP {health.status}"


def _last_words(runtime: Runtime, labels: Labels) -> str:
    """What it does now is in its log: a model that loads for five minutes says how far it is."""
    try:
        lines = [line for line in runtime.log_lines(labels.gpu, last=1, follow=False) if line]
    except (DdtreeError, OSError):
        return ""
    return f": {plain(lines[-1])[:_WORDS]}" if lines else ""


def _stuck(engine: EngineClient, health: Health) -> str:
    """Where on the way to a token it stopped."""
    if engine.health().ready:
        return (
            f"its server is up and its model loaded, but it generates nothing ({_seen(health)}): "
            "its scheduler may be dead"
        )
    return health.detail if health.status is None else _seen(health)


def quick_smoke(runtime: Runtime, labels: Labels, *, say: Progress) -> None:
    """Raises Unhealthy for answers that a working engine does not give.

    Where the engine itself says that its states are not exact, as it was allowed to, they are a
    warning.
    """
    from ..smoke.suite import run_quick

    instance = _find(runtime, labels)
    with EngineClient(runtime.reach(instance)) as engine:
        outcomes = run_quick(engine, served_name=labels.served_name)
        unsafe = engine.server_info().arguments.get("speculative_ddtree_state") == "unsafe"
    for outcome in outcomes:
        if outcome.verdict == "failed":
            if not unsafe:
                raise Unhealthy(f"{outcome.check}: {outcome.detail}", where=instance.title)
            warn(f"{outcome.check}: {outcome.detail}")
    say(", ".join(outcome.check for outcome in outcomes if outcome.verdict == "passed"))


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
