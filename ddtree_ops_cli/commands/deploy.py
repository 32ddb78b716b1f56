"""`ddtree deploy`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import Settings
from .options import Budget, Change, ModelProfile, ServiceProfile, changes


@changes
def deploy(
    ctx: typer.Context,
    change: Change,
    service: ServiceProfile = None,
    model: ModelProfile = None,
    gpu: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="GPU index.  [default: where the service is, or the first free]",
        ),
    ] = None,
    budget: Budget = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="N",
            help="TCP port.  [default: the host's base_port + GPU index]",
        ),
    ] = None,
    allow_hybrid_unsafe: Annotated[
        bool,
        typer.Option(
            "--allow-hybrid-unsafe",
            help="Start a tree on a hybrid target even where the engine cannot keep each node's "
            "recurrent state apart. Without effect on an engine that is exact.",
        ),
    ] = False,
) -> None:
    """Start a service and prove that it generates.

    A service that is on the GPU already is replaced: it is stopped and kept, and started again if
    the new one fails. A service that is as declared, and healthy, is left alone.
    """
    from ..profiles.locate import Library
    from ..rollout.deployment import Request
    from ..rollout.run import deploy as deploy_on
    from ..services.spec import Overrides

    settings: Settings = ctx.obj
    library = Library.default(settings.profiles)
    asked = Request(service, model, gpu, Overrides(budget, port, allow_hybrid_unsafe))
    change.carry_out(
        library,
        lambda host, runtime, manner: deploy_on(library, host, runtime, asked, manner),
    )
