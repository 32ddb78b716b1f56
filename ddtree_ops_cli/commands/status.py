"""`ddtree status`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import Settings
from .options import AsJson


def status(
    ctx: typer.Context,
    host: Annotated[
        str | None,
        typer.Argument(
            metavar="HOST", help="Only this host.  [default: the lab and your own hosts]"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what runs where, and how it is.

    Below the table: where a service is not what its profiles say now, and what was cut off.
    """
    from ..errors import DdtreeError
    from ..hosts.clock import Clock, warn_if_off
    from ..hosts.connection import Connections
    from ..hosts.fleet import conclude, each
    from ..output import machine
    from ..output.console import note
    from ..profiles.load import Loaded
    from ..profiles.locate import Library
    from ..profiles.schema import HostProfile
    from ..rollout.audit import Run, told, unfinished
    from ..services.observation import Observed, survey
    from ..services.overview import document, show
    from ..services.runtimes import open_runtime

    settings: Settings = ctx.obj
    library = Library.default(settings.profiles)
    targets = {host: library.host(host)} if host else library.targets()
    with Connections() as connections:

        def look(at: Loaded[HostProfile]) -> tuple[list[Observed], list[Run], Clock]:
            runtime = open_runtime(at, connections)
            return survey(at, runtime, library), unfinished(runtime.state), runtime.clock

        found = each(targets, look)
    services = {name: r if isinstance(r, DdtreeError) else r[0] for name, r in found.items()}
    broken = {name: [] if isinstance(r, DdtreeError) else r[1] for name, r in found.items()}
    clocks = {name: r[2] for name, r in found.items() if not isinstance(r, DdtreeError)}
    for name, clock in clocks.items():
        warn_if_off(name, clock)
    if as_json:
        machine.write(
            {
                name: {
                    **told_of,
                    "unfinished": broken[name],
                    "clock_offset_s": round(clocks[name].offset_s) if name in clocks else None,
                }
                for name, told_of in document(services).items()
            }
        )
    else:
        show(services)
        for name, runs in broken.items():
            for run in runs:
                note(f"{name}: {told(run, name)}")
    conclude(services)
