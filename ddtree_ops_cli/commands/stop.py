"""`ddtree stop`."""

from __future__ import annotations

import typer

from ..settings import Settings
from .options import Change, Gpu, Service, changes


@changes
def stop(ctx: typer.Context, change: Change, service: Service = None, gpu: Gpu = None) -> None:
    """Stop a service with all its processes.

    It is kept with its log: `ddtree rollback` starts it again, `ddtree prune` forgets it.
    """
    from ..profiles.locate import Library
    from ..rollout.run import stop as stop_on

    settings: Settings = ctx.obj
    change.carry_out(
        Library.default(settings.profiles),
        lambda host, runtime, manner: stop_on(
            host, runtime, service=service, gpu=gpu, manner=manner
        ),
    )
