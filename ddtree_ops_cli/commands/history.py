"""`ddtree history`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import Settings
from .options import AsJson, Gpu, Host


def history(
    ctx: typer.Context,
    host: Host,
    gpu: Gpu = None,
    run: Annotated[
        str | None, typer.Option(metavar="ID", help="Show each event of this run.")
    ] = None,
    last: Annotated[
        int, typer.Option("--lines", min=1, metavar="N", help="Runs to show, the latest last.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Show who did what on a host, and when.

    From the audit log that the host itself keeps, by its own clock (UTC).
    """
    from ..errors import UsageError
    from ..hosts.clock import warn_if_off
    from ..hosts.connection import Connections
    from ..hosts.facts import read_clock
    from ..output import machine, tables
    from ..profiles.locate import Library
    from ..rollout.audit import history as read
    from ..rollout.lock import holders
    from ..services.runtimes import open_runtime

    settings: Settings = ctx.obj
    with Connections() as connections:
        state = open_runtime(Library.default(settings.profiles).host(host), connections).state
        warn_if_off(host, read_clock(state.shell))
        runs = [found for found in read(state) if gpu in (None, found.gpu)]
        held = {holder.name for holder in holders(state) if holder.held}
    if run is not None:
        runs = [found for found in runs if found.run == run]
        if not runs:
            raise UsageError(f"no run {run}", where=f"host {host}", mend="see `ddtree history`")
    runs = runs[-last:]
    if as_json:
        machine.write(runs)
    elif run is not None:
        tables.show(
            ("at", "step", "event", "detail"),
            [
                (e.get("at"), e.get("step") or e.get("kind"), e.get("event") or e.get("result"),
                 e.get("detail") or e.get("command"))
                for e in runs[0].events
            ],
        )  # fmt: skip
    else:
        tables.show(
            ("at", "run", "who", "command", "GPU", "service", "result", "detail"),
            [
                (found.at, found.run, found.who, found.command, found.gpu, found.service,
                 found.result or ("going on" if found.lock in held else "cut off"),
                 found.detail or (found.last if found.result is None else None))
                for found in runs
            ],
            numeric="GPU",
        )  # fmt: skip
