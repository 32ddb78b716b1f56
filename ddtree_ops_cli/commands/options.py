"""The arguments and options that several commands share, so that they mean the same in each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..profiles.load import Loaded
    from ..profiles.locate import Library
    from ..profiles.schema import HostProfile
    from ..rollout.run import Manner, Outcome
    from ..services.runtimes import Runtime

Host = Annotated[str, typer.Argument(metavar="HOST", help="A host profile; `lab` is this machine.")]
DockerHost = Annotated[
    str, typer.Argument(metavar="HOST", help="A host profile whose services are containers.")
]
Hosts = Annotated[
    list[str],
    typer.Argument(
        metavar="HOST", help="Host profiles, or @GROUP for all hosts of a group; `lab` is here."
    ),
]
Service = Annotated[str | None, typer.Option(metavar="NAME", help="Only this service.")]
Gpu = Annotated[int | None, typer.Option(min=0, metavar="N", help="Only on this GPU.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Show what would be done and change nothing.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LockWait = Annotated[
    float,
    typer.Option(
        "--lock-wait",
        min=0,
        metavar="SECONDS",
        help="Wait as long for somebody else's work there.  [default: not at all]",
        show_default=False,
    ),
]
ServiceProfile = Annotated[
    str | None, typer.Option(metavar="NAME", help="A service profile.  [default: the host's]")
]
ModelProfile = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A model profile.  [default: the service's or host's]"),
]
Budget = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Tree nodes to verify besides the root.  [default: the service profile's]",
    ),
]


@dataclass(frozen=True, slots=True)
class Change:
    """What each command that changes services on hosts is told: the options that `changes` adds."""

    hosts: Hosts
    why: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="A reason, for the lock and the audit log.", show_default=False
        ),
    ] = ""
    lock_wait: LockWait = 0.0
    max_parallel: Annotated[
        int, typer.Option(min=1, metavar="N", help="Hosts to work on at once.")
    ] = 16
    max_failures: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Begin no further host after so many failed.  [default: no limit]",
        ),
    ] = None
    dry_run: DryRun = False
    as_json: AsJson = False

    def carry_out(
        self,
        library: Library,
        work: Callable[[Loaded[HostProfile], Runtime, Manner], Outcome],
    ) -> None:
        """Raises the error of a single host, or SomeHostsFailed."""
        from ..rollout.many import Spread, carry_out
        from ..rollout.run import Manner

        manner = Manner(self.dry_run, self.lock_wait, self.why)
        carry_out(
            library,
            self.hosts,
            lambda host, runtime: work(host, runtime, manner),
            spread=Spread(self.max_parallel, self.max_failures),
            dry_run=self.dry_run,
            as_json=self.as_json,
        )


def changes(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of Change after its own; it gets them as its argument `change`."""
    own = dict(inspect.signature(command, eval_str=True).parameters)
    del own["change"]
    shared = inspect.signature(Change, eval_str=True).parameters

    def run(**given: Any) -> None:
        change = Change(**{name: given.pop(name) for name in shared})
        command(**given, change=change)

    told = [one.replace(kind=one.KEYWORD_ONLY) for one in (*own.values(), *shared.values())]
    described: Any = run
    described.__name__, described.__doc__ = command.__name__, command.__doc__
    described.__signature__ = inspect.Signature(told)
    described.__annotations__ = {one.name: one.annotation for one in told}
    return run
