"""`ddtree lock show|break`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import Settings
from .options import AsJson, DryRun, Host

app = typer.Typer(help="The locks, which say who is at work on a host: show, break.")


@app.command()
def show(ctx: typer.Context, host: Host, as_json: AsJson = False) -> None:
    """Show each lock of a host and who holds it, or held it last.

    Times are by the host's own clock (UTC).
    """
    from ..hosts.clock import warn_if_off
    from ..hosts.connection import Connections
    from ..hosts.facts import read_clock
    from ..output import machine, tables
    from ..profiles.locate import Library
    from ..rollout.lock import holders
    from ..services.runtimes import open_runtime

    settings: Settings = ctx.obj
    with Connections() as connections:
        state = open_runtime(Library.default(settings.profiles).host(host), connections).state
        warn_if_off(host, read_clock(state.shell))
        found = holders(state)
    if as_json:
        machine.write(found)
        return
    tables.show(
        ("lock", "", "who", "for", "since"),
        [
            (h.name, "held" if h.held else "free", h.who, h.purpose, h.since)
            for h in found
        ],
    )  # fmt: skip


@app.command("break")
def break_(
    ctx: typer.Context,
    host: Host,
    name: Annotated[
        str, typer.Argument(metavar="LOCK", help="Such as gpu-1; `ddtree lock show` lists them.")
    ],
    dry_run: DryRun = False,
) -> None:
    """End what holds a lock.

    Whoever held it stops before the next step and undoes nothing: look at `ddtree status` then.
    """
    from ..errors import UsageError
    from ..hosts.connection import Connections
    from ..output.console import note
    from ..profiles.locate import Library
    from ..rollout.lock import break_lock, holders
    from ..services.runtimes import open_runtime

    settings: Settings = ctx.obj
    with Connections() as connections:
        target = Library.default(settings.profiles).host(host)
        state = open_runtime(target, connections).state
        found = {holder.name: holder for holder in holders(state)}
        if name not in found:
            known = ", ".join(found)
            raise UsageError(
                f"no lock {name}",
                where=f"host {host}",
                mend=f"there is: {known}" if known else "none was ever taken",
            )
        holder = found[name]
        if not holder.held:
            note(f"{name} is free; {holder} held it last")
        elif dry_run:
            note(f"{name} would be taken from {holder}")
        else:
            break_lock(state, holder)
            note(f"{name} is free; it was held by {holder}")
