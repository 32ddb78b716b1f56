"""`ddtree status`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import Settings
from .options import AsJson


def status(
    ctx: typer.Context,
    host: Annotated[
        str | None,
        typer.Argument(
            metavar="HOST", help="Only this host.  [default: the lab and your own hosts]"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what runs where, and how it is."""
    from functools import partial

    from ..errors import DdtreeError, SomeHostsFailed
    from ..hosts.connection import Connections
    from ..hosts.fleet import each
    from ..output import machine
    from ..profiles.locate import Library
    from ..services.observation import survey
    from ..services.overview import document, show

    settings: Settings = ctx.obj
    library = Library.default(settings.profiles)
    targets = {host: library.host(host)} if host else library.targets()
    with Connections() as connections:
        found = each(targets, partial(survey, connections=connections))
    if as_json:
        machine.write(document(found))
    else:
        show(found)
    failed = {name: result for name, result in found.items() if isinstance(result, DdtreeError)}
    if host is not None and failed:
        raise failed[host]
    if failed:
        raise SomeHostsFailed(f"no answer from {len(failed)} of {len(found)} hosts")
