"""How a service is now: what `status` shows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ..errors import DdtreeError
from .drift import Drift, drift
from .runtimes import Instance, Runtime
from .spec import Overrides, decide

if TYPE_CHECKING:
    from ..profiles.load import Loaded
    from ..profiles.locate import Library
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
    drift: tuple[Drift, ...] = ()
    """Where it is not what its profiles say now."""


def survey(host: Loaded[HostProfile], runtime: Runtime, library: Library) -> list[Observed]:
    """Everything deployed on a host."""
    return [
        replace(observe(runtime, instance), drift=_drift(host, instance, library))
        for instance in runtime.instances()
    ]


def _drift(host: Loaded[HostProfile], instance: Instance, library: Library) -> tuple[Drift, ...]:
    labels = instance.labels
    try:
        service, model = library.service(labels.service), library.model(labels.model)
        declared = decide(host, service, model, labels.gpu, Overrides())
    except DdtreeError as error:
        return (Drift("profile", f"{labels.service} of {labels.model}", error.what),)
    return tuple(drift(labels, declared))


def observe(runtime: Runtime, instance: Instance) -> Observed:
    """Ask the engine itself; a process that merely runs is not healthy."""
    # A host's clock is known to half a second, and may have been set since.
    uptime = max(0.0, runtime.clock.now - instance.started_at)
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
