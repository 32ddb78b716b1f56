"""What is true of the GPU that a deploy is for. Read before a decision, never after."""

from __future__ import annotations

from dataclasses import dataclass

from ..services.runtimes import Instance, Runtime
from ..services.spec import ServiceSpec


@dataclass(frozen=True, slots=True)
class Facts:
    occupant: Instance | None
    """The service on the GPU that the spec is for."""
    occupant_healthy: bool
    gpu_holder: str | None
    """What computes on the GPU that this toolkit did not start."""
    port_holder: str | None
    """Who listens on the spec's port, if it is not the occupant."""


def gather(runtime: Runtime, spec: ServiceSpec) -> Facts:
    from ..engine_api.client import EngineClient

    occupants = [i for i in runtime.instances() if i.labels.gpu == spec.gpu]
    occupant = occupants[0] if occupants else None
    healthy = False
    if occupant is not None and occupant.state == "running":
        with EngineClient(runtime.reach(occupant)) as engine:
            healthy = engine.health_generate().ready
    return Facts(
        occupant,
        healthy,
        gpu_holder=runtime.held().get(spec.gpu),
        port_holder=port_holder(runtime, occupant, spec.bind, spec.port),
    )


def port_holder(runtime: Runtime, occupant: Instance | None, bind: str, port: int) -> str | None:
    """Who listens there, if it is not the service that will be stopped first."""
    if occupant is not None and occupant.state == "running" and occupant.labels.port == port:
        return None
    return runtime.port_holder(bind, port)
