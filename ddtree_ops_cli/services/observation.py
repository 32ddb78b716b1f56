"""How a service is now: what `status` shows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..errors import DdtreeError
from .runtimes import Instance, Runtime, open_runtime

if TYPE_CHECKING:
    from ..hosts.connection import Connections
    from ..profiles.load import Loaded
    from ..profiles.schema import HostProfile

Health = Literal["healthy", "starting", "unhealthy", "dead"]


@dataclass(frozen=True, slots=True)
class Observed:
    instance: Instance
    health: Health
    detail: str
    uptime_s: float | None
    """None for a dead service: nothing says when it ended."""
    accept_length: float | None
    """Server average, tokens per verify step; None without speculation or before the first."""


def survey(host: Loaded[HostProfile], connections: Connections) -> list[Observed]:
    """Everything deployed on a host."""
    runtime = open_runtime(host, connections)
    return [observe(runtime, instance) for instance in runtime.instances()]


def observe(runtime: Runtime, instance: Instance) -> Observed:
    """Ask the engine itself; a process that merely runs is not healthy."""
    uptime = time.time() - instance.started_at
    if instance.state == "dead":
        how = runtime.ended(instance) or "it just came back"
        hint = f"{how}; see `ddtree logs {instance.labels.host} --gpu {instance.labels.gpu}`"
        return Observed(instance, "dead", hint, None, None)
    from ..engine_api.client import EngineClient

    with EngineClient(runtime.reach(instance)) as engine:
        health = engine.health_generate()
        if health.status == 503:
            return Observed(instance, "starting", health.detail, uptime, None)
        if not health.ready:
            said = health.detail if health.status is None else f"HTTP {health.status}"
            return Observed(instance, "unhealthy", said, uptime, None)
        try:
            states = engine.server_info().internal_states
        except DdtreeError as error:
            return Observed(instance, "unhealthy", str(error), uptime, None)
    average = states[0].get("avg_spec_accept_length") if states else None
    return Observed(instance, "healthy", "", uptime, float(average) if average else None)
