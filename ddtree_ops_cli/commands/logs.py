"""`ddtree logs`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import Settings
from .options import Host, Service


def logs(
    ctx: typer.Context,
    host: Host,
    service: Service = None,
    gpu: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Only on this GPU; also after the service on it was stopped."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing.")] = False,
    last: Annotated[
        int, typer.Option("--lines", min=0, metavar="N", help="Lines to begin with.")
    ] = 100,
) -> None:
    """Print the engine's log."""
    from ..hosts.connection import Connections
    from ..output.console import data
    from ..profiles.locate import Library
    from ..services.runtimes import open_runtime
    from ..services.selection import select

    settings: Settings = ctx.obj
    target = Library.default(settings.profiles).host(host)
    with Connections() as connections:
        runtime = open_runtime(target, connections)
        if gpu is None or service is not None:
            gpu = select(runtime.instances(), host=host, service=service, gpu=gpu).labels.gpu
        console = data()
        try:
            for line in runtime.log_lines(gpu, last=last, follow=follow):
                console.print(line, markup=False, soft_wrap=True)
        except KeyboardInterrupt:
            # The usual way to leave --follow is no error.
            raise typer.Exit(130) from None
