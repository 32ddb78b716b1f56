"""`ddtree rollback`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import Settings
from .options import Change, Gpu, Service, changes


@changes
def rollback(
    ctx: typer.Context,
    change: Change,
    service: Service = None,
    gpu: Gpu = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="This kept service, by its id (`ddtree prune HOST -n` lists them).  "
            "[default: the one stopped last]",
        ),
    ] = None,
) -> None:
    """Start again what ran on a GPU before.

    What runs there now is stopped and kept, so that a second rollback undoes the first.
    """
    from ..profiles.locate import Library
    from ..rollout.run import rollback as roll_back

    settings: Settings = ctx.obj
    change.carry_out(
        Library.default(settings.profiles),
        lambda host, runtime, manner: roll_back(
            host, runtime, service=service, gpu=gpu, to=to, manner=manner
        ),
    )
