"""`ddtree stop`."""

from __future__ import annotations

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


def stop(
    ctx: typer.Context,
    hosts: Hosts,
    service: Service = None,
    gpu: Gpu = None,
    why: Why = "",
    lock_wait: LockWait = 0.0,
    max_parallel: MaxParallel = 16,
    max_failures: MaxFailures = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Stop a service with all its processes.

    It is kept with its log: `ddtree rollback` starts it again, `ddtree prune` forgets it.
    """
    from ..profiles.locate import Library
    from ..rollout.many import Spread, carry_out
    from ..rollout.run import Manner
    from ..rollout.run import stop as stop_on

    settings: Settings = ctx.obj
    manner = Manner(dry_run, lock_wait, why)
    carry_out(
        Library.default(settings.profiles),
        hosts,
        lambda host, runtime: stop_on(host, runtime, service=service, gpu=gpu, manner=manner),
        spread=Spread(max_parallel, max_failures),
        dry_run=dry_run,
        as_json=as_json,
    )
