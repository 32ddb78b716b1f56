"""`ddtree prune`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import Settings
from .options import AsJson, DryRun, Host


def prune(
    ctx: typer.Context,
    host: Host,
    older_than: Annotated[
        float,
        typer.Option(
            min=0, metavar="HOURS", help="Only what was stopped so long ago, by the host's clock."
        ),
    ] = 24.0,
    latest_too: Annotated[
        bool,
        typer.Option(
            "--latest-too", help="Also the last one of each GPU, which a rollback would start."
        ),
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Forget services that were stopped, with their logs.

    Only what this toolkit started: nothing else on the host is touched.
    """
    from ..hosts.connection import Connections
    from ..output import machine, tables
    from ..profiles.locate import Library
    from ..rollout.prune import prune as prune_on
    from ..services.overview import summary
    from ..services.runtimes import open_runtime

    settings: Settings = ctx.obj
    with Connections() as connections:
        result = prune_on(
            open_runtime(Library.default(settings.profiles).host(host), connections),
            older_than_s=older_than * 3600,
            latest_too=latest_too,
            purpose=f"prune {host}",
            dry_run=dry_run,
        )
    if as_json:
        machine.write(
            {
                "dry_run": dry_run,
                "forgotten": [summary(instance) for instance in result.forgotten],
                "spared": [summary(i) | {"reason": reason} for i, reason in result.spared],
            }
        )
        return
    done = "would be forgotten" if dry_run else "forgotten"
    told = [(i, done) for i in result.forgotten]
    told += [(i, f"spared: {reason}") for i, reason in result.spared]
    tables.show(
        ("GPU", "service", "id", "budget", "outcome"),
        [(i.labels.gpu, i.labels.service, i.identity, i.labels.budget, word) for i, word in told],
        numeric="GPU budget",
    )
