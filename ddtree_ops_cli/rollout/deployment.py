"""From what the command line asks to a plan: profiles, then facts, then the decision."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace

from ..errors import UsageError
from ..output.times import utc
from ..profiles.load import Loaded
from ..profiles.locate import Library
from ..profiles.schema import HostProfile, ModelProfile, ServiceProfile
from ..profiles.sections import Section
from ..services.labels import Labels
from ..services.runtimes import Runtime
from ..services.selection import place
from ..services.spec import Overrides, decide
from .facts import gather, port_holder
from .lock import me
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

    def on(self, gpu: int) -> Request:
        return replace(self, gpu=gpu)


def prepare(
    library: Library, host: Loaded[HostProfile], runtime: Runtime, request: Request
) -> Plan:
    """The plan that makes the request true; a plan without steps if it is true already.

    Raises UsageError and ProfileError for a request that no plan can serve.
    """
    service, model = _profiles(library, host, request)
    gpu = chosen_gpu(library, host, runtime, request)
    spec = decide(host, service, model, gpu, request.overrides)
    facts = gather(runtime, spec)
    launch = runtime.launch(spec)
    labels = Labels.of(
        spec,
        engine=launch.engine,
        deployer=me(),
        deployed_at=utc(runtime.clock.now),
        profile_hash=_hash(host, service, model),
        container=launch.container,
    )
    start = Start(spec=spec, labels=labels, launch=launch)
    change = Change(
        previous=facts.occupant,
        start=start,
        ready_timeout_s=host.value.ready_timeout_s,
        gpu_holder=facts.gpu_holder,
        port_holder=facts.port_holder,
    )
    name = playbook_for(labels, facts)
    if name is None:
        return Plan("none", "Leave it as it is", change, ())
    return plan(load(name), change)


def prepare_rollback(
    host: Loaded[HostProfile], runtime: Runtime, gpu: int, *, to: str | None
) -> Plan:
    """The plan that starts again what was kept: the latest, or the one named by its identity."""
    kept = [i for i in runtime.kept() if i.labels.gpu == gpu]
    # With `pid` or `container` before it, as it is shown, or without; its first letters do.
    asked = "" if to is None else to.rpartition(" ")[2]
    wanted = [i for i in kept if i.identity.rpartition(" ")[2].startswith(asked)]
    if not wanted or (to is not None and len(wanted) > 1):
        known = ", ".join(f"{i.identity} ({i.labels.service})" for i in kept)
        raise UsageError(
            f"no kept service {to}" if kept and to else "nothing was kept to go back to",
            where=f"host {host.name}, GPU {gpu}",
            mend=f"there is: {known}" if kept else f"`ddtree deploy {host.name}` starts a service",
        )
    again = wanted[0]
    occupant = next((i for i in runtime.instances() if i.labels.gpu == gpu), None)
    change = Change(
        previous=occupant,
        again=again,
        ready_timeout_s=host.value.ready_timeout_s,
        gpu_holder=runtime.held().get(gpu),
        port_holder=port_holder(runtime, occupant, again.labels.bind, again.labels.port),
    )
    return plan(load("rollback"), change)


def chosen_gpu(
    library: Library, host: Loaded[HostProfile], runtime: Runtime, request: Request
) -> int:
    """The GPU of the request, or else where the service is, or else the first free one."""
    if request.gpu is None:
        service, _ = _profiles(library, host, request)
        return place(
            runtime.instances(),
            host=host.name,
            service=service.name,
            gpus=runtime.gpus,
            held=runtime.held(),
        )
    if request.gpu >= runtime.gpus:
        raise UsageError(
            f"no GPU {request.gpu}",
            where=f"host {host.name}",
            mend=f"it has 0 to {runtime.gpus - 1}",
        )
    return request.gpu


def _profiles(
    library: Library, host: Loaded[HostProfile], request: Request
) -> tuple[Loaded[ServiceProfile], Loaded[ModelProfile]]:
    service = library.service(request.service or host.value.service)
    return service, library.model(request.model or service.value.model or host.value.model)


def _hash(*profiles: Loaded[Section]) -> str:
    """12 hex digits of what profiles say, wherever they say it."""
    values = [profile.value.model_dump(mode="json") for profile in profiles]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]
