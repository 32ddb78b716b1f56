"""From what the command line asks to a plan: profiles, then facts, then the decision."""

from __future__ import annotations

import getpass
import platform
from dataclasses import dataclass, field

from ..errors import UsageError
from ..profiles.load import Loaded
from ..profiles.locate import Library
from ..profiles.schema import HostProfile
from ..services.labels import Labels
from ..services.runtimes import Runtime
from ..services.selection import place
from ..services.spec import Overrides, decide
from .facts import gather
from .operations import Change, Start
from .plan import Plan, plan, playbook_for
from .playbook import load


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for; None leaves it to the profiles."""

    service: str | None = None
    model: str | None = None
    gpu: int | None = None
    overrides: Overrides = field(default_factory=Overrides)


def prepare(
    library: Library, host: Loaded[HostProfile], runtime: Runtime, request: Request
) -> Plan:
    """The plan that makes the request true; a plan without steps if it is true already.

    Raises UsageError and ProfileError for a request that no plan can serve.
    """
    service = library.service(request.service or host.value.service)
    model = library.model(request.model or service.value.model or host.value.model)
    gpu = request.gpu
    if gpu is None:
        gpu = place(runtime.instances(), host=host.name, service=service.name, gpus=runtime.gpus)
    elif gpu >= runtime.gpus:
        raise UsageError(
            f"no GPU {gpu}", where=f"host {host.name}", mend=f"it has 0 to {runtime.gpus - 1}"
        )
    spec = decide(host, service, model, gpu, request.overrides)
    facts = gather(runtime, spec)
    start = Start(
        spec=spec,
        labels=Labels.of(
            spec, engine=runtime.engine, deployer=f"{getpass.getuser()}@{platform.node()}"
        ),
        argv=runtime.command(spec),
        environment={},
        port_holder=facts.port_holder,
        ready_timeout_s=host.value.ready_timeout_s,
    )
    change = Change(previous=facts.occupant, start=start)
    name = playbook_for(spec, facts)
    if name is None:
        return Plan("none", "Leave it as it is", change, ())
    return plan(load(name), change)
