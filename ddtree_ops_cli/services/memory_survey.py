"""From what `ddtree plan` asks to a plan of memory: profiles, then facts, then the decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import DdtreeError, UsageError
from ..hosts.connection import Connections
from ..hosts.facts import read_facts
from ..hosts.gpus import Gpu
from ..hosts.shell import ThisMachine
from ..hosts.unknown import Unknown
from .engine_options import EngineOptions
from .memory_plan import Column, Wanted, for_gpus, for_lab
from .preflight import Models, describe_models, judge_models, sources
from .spec import Overrides, ServiceSpec, decide
from .weights import Role, WeightsFacts, read_weights

if TYPE_CHECKING:
    from ..profiles.load import Loaded
    from ..profiles.locate import Library
    from ..profiles.schema import HostProfile


@dataclass(frozen=True, slots=True)
class Surveyed:
    spec: ServiceSpec
    models: Models
    options: EngineOptions
    columns: Sequence[Column]
    missing: DdtreeError | None
    """Why an engine could not load these models yet, though their memory is known."""


def survey(
    library: Library,
    name: str,
    *,
    service: str | None,
    model: str | None,
    gpu: int | None,
    overrides: Overrides,
    wanted: Wanted,
) -> Surveyed:
    """Raises DdtreeError where the models, or the memory of the GPUs, are not to be found.

    A model is known by its config.json, and by its index how large it is, before its weights are
    there.
    """
    host = library.host(name)
    its_service = library.service(service or host.value.service)
    its_model = library.model(model or its_service.value.model or host.value.model)
    spec = decide(host, its_service, its_model, gpu or 0, overrides)
    options = EngineOptions.of(spec)
    options = replace(
        options,
        max_running_requests=wanted.requests or options.max_running_requests,
        context_length=wanted.context or options.context_length,
    )
    user = its_service.value.container.user
    with Connections() as connections:
        shell = ThisMachine(name) if _is_lab(host) else connections.to(host)
        facts = read_facts(shell, ("memory",) if _is_lab(host) else ("gpus",))
        weights = read_weights(shell, sources(spec))
    models, missing = _models(weights, spec, name, user)
    if _is_lab(host):
        places = host.value.gpus or 1
        if gpu is not None and gpu >= places:
            raise _no_gpu(name, gpu, range(places))
        if isinstance(facts.memory, Unknown):
            raise DdtreeError(facts.memory.what, where=f"host {name}", mend=facts.memory.mend)
        column = for_lab(facts.memory, models, options)
        return Surveyed(spec, models, options, [column], missing)
    if isinstance(facts.gpus, Unknown):
        raise DdtreeError(facts.gpus.what, where=f"host {name}", mend=facts.gpus.mend)
    columns = for_gpus(_chosen(facts.gpus, gpu, name), models, options, wanted)
    if not columns:
        raise DdtreeError("no GPU says how much memory it has", where=f"host {name}")
    return Surveyed(spec, models, options, columns, missing)


def refuse(found: Surveyed) -> None:
    """Raises DdtreeError if the weights are missing, or the service fits on none of the GPUs."""
    if found.missing is not None:
        raise found.missing
    if any(column.refusal is None for column in found.columns):
        return
    first = found.columns[0]
    raise DdtreeError(
        f"{found.spec.service} does not fit: {first.refusal}",
        where=f"{first.title}, host {found.spec.host}",
        mend=first.mend,
    )


def _models(
    facts: Mapping[Role, WeightsFacts], spec: ServiceSpec, host: str, user: str | None
) -> tuple[Models, DdtreeError | None]:
    try:
        return judge_models(facts, spec, host, user), None
    except DdtreeError as error:
        try:
            return describe_models(facts, spec, host), error
        except DdtreeError:
            raise error from None


def _is_lab(host: Loaded[HostProfile]) -> bool:
    return host.value.runtime == "process"


def _chosen(gpus: Sequence[Gpu], index: int | None, host: str) -> Sequence[Gpu]:
    chosen = [gpu for gpu in gpus if index in (None, gpu.index)]
    if not chosen:
        assert index is not None, "nvidia-smi that finds no GPU is Unknown"
        raise _no_gpu(host, index, [gpu.index for gpu in gpus])
    return chosen


def _no_gpu(host: str, index: int, there: Sequence[int]) -> UsageError:
    present = ", ".join(map(str, there))
    return UsageError(f"no GPU {index}", where=f"host {host}", mend=f"there is: {present}")
