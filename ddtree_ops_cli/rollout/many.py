"""One change on one host or on many: each host's own result, and one exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import DdtreeError
from ..hosts.connection import Connections
from ..hosts.fleet import MAX_PARALLEL, conclude, each
from ..profiles.load import Loaded
from ..profiles.locate import Library
from ..profiles.schema import HostProfile
from ..services.runtimes import Runtime, open_runtime
from .report import show
from .run import Outcome

Work = Callable[[Loaded[HostProfile], Runtime], Outcome]


@dataclass(frozen=True, slots=True)
class Spread:
    max_parallel: int = MAX_PARALLEL
    max_failures: int | None = None
    """Hosts that may fail before no further one is begun; None for any number."""


def carry_out(
    library: Library,
    names: Sequence[str],
    work: Work,
    *,
    spread: Spread,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Raises the error of a single host, or SomeHostsFailed."""
    with Connections() as connections:
        found = each(
            library.hosts(names),
            lambda host: work(host, open_runtime(host, connections)),
            max_parallel=spread.max_parallel,
            max_failures=spread.max_failures,
        )
        show(found, dry_run=dry_run, as_json=as_json)
    conclude(
        {name: _verdict(outcome) for name, outcome in found.items()},
        mend="the same command again leaves the others as they are",
    )


def _verdict(outcome: Outcome | DdtreeError) -> object:
    return outcome if isinstance(outcome, DdtreeError) else outcome.refused or outcome
