"""`ddtree rollback`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import Settings
from .options import (
    AsJson,
    DryRun,
    Gpu,
    Hosts,
    LockWait,
    MaxFailures,
    MaxParallel,
    Service,
    Why,
)


def rollback(
    ctx: typer.Context,
    hosts: Hosts,
    service: Service = None,
    gpu: Gpu = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="This kept service, by its id.  [default: the one stopped last]"
        ),
    ] = None,
    why: Why = "",
    lock_wait: LockWait = 0.0,
    max_parallel: MaxParallel = 16,
    max_failures: MaxFailures = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Start again what ran on a GPU before.

    What runs there now is stopped and kept, so that a second rollback undoes the first.
    """
    from ..profiles.locate import Library
    from ..rollout.many import Spread, carry_out
    from ..rollout.run import Manner
    from ..rollout.run import rollback as roll_back

    settings: Settings = ctx.obj
    manner = Manner(dry_run, lock_wait, why)
    carry_out(
        Library.default(settings.profiles),
        hosts,
        lambda host, runtime: roll_back(
            host, runtime, service=service, gpu=gpu, to=to, manner=manner
        ),
        spread=Spread(max_parallel, max_failures),
        dry_run=dry_run,
        as_json=as_json,
    )
