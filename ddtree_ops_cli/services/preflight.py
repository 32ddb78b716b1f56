"""What would fail minutes after a start, inside the engine: weights, and memory.

`preflight` is what a deploy asks; `ddtree plan` shows the same figures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import DdtreeError
from ..output.console import warn
from .engine_options import EngineOptions
from .memory import Division, divide, largest_budget
from .rights import User
from .shapes import GIB, MIB, Pair, Uncounted
from .weights import Role, Source, WeightsFacts, read_weights
from .weights_verdict import Weights, describe, judge, judge_pair, together

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..hosts.gpus import Gpu
    from ..hosts.shell import Shell
    from .spec import ServiceSpec


@dataclass(frozen=True, slots=True)
class Models:
    """The weights of a service, found whole and fit for each other."""

    target: Weights
    drafter: Weights | None
    pair: Pair


def preflight(shell: Shell, spec: ServiceSpec, gpu: Gpu, container_user: str | None) -> None:
    """Raises DdtreeError for weights that are not there, not whole, not readable by the container's
    user (Docker's form; None: root) or not made for each other, and for memory that does not
    suffice. What only makes the service smaller than it was asked to be is a warning."""
    try:
        models = find_models(shell, spec, container_user)
    except Uncounted as error:
        warn(str(error))
        return
    if gpu.memory_total_mib is None:
        return
    where = f"GPU {gpu.index} of host {spec.host}"
    options = EngineOptions.of(spec)
    division = divide(gpu.memory_total_mib * MIB, models.pair, options)
    if division.refusal is not None:
        raise DdtreeError(
            f"it does not fit: {division.refusal}",
            where=where,
            mend=mend(division, models.pair, options)
            + f"; `ddtree plan {spec.host} --gpu {gpu.index}` shows what takes how much",
        )
    for warning in warnings(division, options):
        warn(f"{where}: {warning}")


def find_models(shell: Shell, spec: ServiceSpec, container_user: str | None) -> Models:
    """One read of the host. Raises DdtreeError for the first fault, or for both models' at once."""
    return judge_models(read_weights(shell, sources(spec)), spec, shell.name, container_user)


def sources(spec: ServiceSpec) -> list[Source]:
    found = [Source("target", spec.target, spec.target_revision)]
    if spec.drafter is not None:
        found.append(Source("drafter", spec.drafter, spec.drafter_revision))
    return found


def judge_models(
    facts: Mapping[Role, WeightsFacts], spec: ServiceSpec, host: str, container_user: str | None
) -> Models:
    """Pure. Models that an engine can load."""
    user = User.named(container_user)
    mounts = [mount.split(":") for mount in spec.container.mounts] if spec.container else []
    mounted = [source for source, target, *_ in mounts if source == target]
    return _each(facts, spec, host, lambda each: judge(each, host=host, user=user, mounted=mounted))


def describe_models(facts: Mapping[Role, WeightsFacts], spec: ServiceSpec, host: str) -> Models:
    """Pure. Models whose weights may be missing still, by what config.json and the index say."""
    return _each(facts, spec, host, lambda each: describe(each, host=host))


def _each(
    facts: Mapping[Role, WeightsFacts],
    spec: ServiceSpec,
    host: str,
    read: Callable[[WeightsFacts], Weights],
) -> Models:
    found: dict[Role, Weights] = {}
    errors: list[DdtreeError] = []
    for role, each in facts.items():
        try:
            found[role] = read(each)
        except DdtreeError as error:
            errors.append(error)
    if errors:
        raise together(errors)
    target, drafter = found["target"], found.get("drafter")
    pair = judge_pair(target, drafter, host=host, block_size=spec.block_size)
    return Models(target, drafter, pair)


def mend(division: Division, pair: Pair, options: EngineOptions) -> str:
    """What makes a service fit that does not; pure."""
    capacity = division.capacity
    ways = []
    if options.tree:
        one = replace(options, max_running_requests=1)
        if (budget := largest_budget(capacity, pair, options)) is not None:
            ways.append(f"--budget {budget}")
        elif (budget := largest_budget(capacity, pair, one)) is not None:
            ways.append(f"--budget {budget} with engine.max_running_requests: 1")
    widest = widest_fraction(division)
    if widest > division.fraction:
        wider = replace(options, mem_fraction_static=widest)
        if divide(capacity, pair, wider).refusal is None:
            ways.append(f"mem_fraction_static: {widest:g} in the model's profile")
    if not ways:
        return "take a GPU with more memory, or a quantised target"
    return f"{' or '.join(ways)} {'fits' if len(ways) == 1 else 'fit'}"


def widest_fraction(division: Division) -> float:
    """mem_fraction_static that leaves what SGLang itself reckons graphs and activations to need."""
    free = division.capacity - division.runtime
    return int((1 - division.estimated_reserve / free) * 1000) / 1000


def warnings(division: Division, options: EngineOptions) -> list[str]:
    """What the engine would not say, or only in its log; pure."""
    found = []
    if options.uncounted:
        found.append(f"not computed here, and of influence: {', '.join(options.uncounted)}")
    if division.refusal is not None:
        return found
    if division.capped_by_states:
        asked = f", not {division.asked}" if division.asked is not None else ""
        found.append(
            f"{_at_once(division)}{asked}: each takes "
            f"{division.slots_per_request} of {division.slots} recurrent states and "
            f"{division.rows} for its nodes; the rest wait"
        )
    elif division.asked is not None and division.running < division.asked:
        found.append(f"{_at_once(division)}, not {division.asked}")
    if division.kv_tokens < options.context_length:
        found.append(
            f"the longest request has {division.kv_tokens} tokens, not {options.context_length}: "
            "more keys and values do not fit"
        )
    taken = sum(size for _, size in division.buffers)
    if taken > division.reserve:
        found.append(
            f"{division.reserve / GIB:.1f} GiB are left to graphs and activations, and "
            f"{taken / GIB:.1f} GiB of buffers must go there: expect to run out of memory; lower "
            "mem_fraction_static"
        )
    return found


def _at_once(division: Division) -> str:
    one = division.running == 1
    return (
        f"{division.running} request{'' if one else 's'} {'is' if one else 'are'} decoded at once"
    )
