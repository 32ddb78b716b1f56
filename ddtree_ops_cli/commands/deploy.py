"""`ddtree deploy`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import Settings
from .options import (
    AsJson,
    Budget,
    DryRun,
    Hosts,
    LockWait,
    MaxFailures,
    MaxParallel,
    ModelProfile,
    ServiceProfile,
    Why,
)


def deploy(
    ctx: typer.Context,
    hosts: Hosts,
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
    why: Why = "",
    lock_wait: LockWait = 0.0,
    max_parallel: MaxParallel = 16,
    max_failures: MaxFailures = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Start a service and prove that it generates.

    A service that is on the GPU already is replaced: it is stopped and kept, and started again if
    the new one fails. A service that is as declared, and healthy, is left alone.
    """
    from ..profiles.locate import Library
    from ..rollout.deployment import Request
    from ..rollout.many import Spread, carry_out
    from ..rollout.run import Manner
    from ..rollout.run import deploy as deploy_on
    from ..services.spec import Overrides

    settings: Settings = ctx.obj
    library = Library.default(settings.profiles)
    asked = Request(service, model, gpu, Overrides(budget, port, allow_hybrid_unsafe))
    manner = Manner(dry_run, lock_wait, why)
    carry_out(
        library,
        hosts,
        lambda host, runtime: deploy_on(library, host, runtime, asked, manner),
        spread=Spread(max_parallel, max_failures),
        dry_run=dry_run,
        as_json=as_json,
    )
