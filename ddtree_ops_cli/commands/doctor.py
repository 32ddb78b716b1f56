"""`ddtree doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..settings import Settings
from .options import AsJson


def doctor(
    ctx: typer.Context,
    host: Annotated[
        str | None,
        typer.Argument(metavar="[HOST]", help="A host profile.  [default: this machine]"),
    ] = None,
    only_list: Annotated[
        bool, typer.Option("--list", help="List the checks and what each prevents.")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the doctor as one script, for a host where nothing may be installed.",
        ),
    ] = None,
    service: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Service profile to check for.  [default: the host's]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what keeps a host or image from running the engine.

    Reads only. Exit code 8 if a blocking check fails.
    """
    import sys
    from importlib.metadata import version as installed

    from ..doctor import report
    from ..doctor.export import script, write
    from ..doctor.intent import intent_of
    from ..doctor.visit import visit
    from ..errors import PatchMismatch, UsageError
    from ..hosts.connection import Connections, Shell, ThisMachine
    from ..output import machine
    from ..output.console import data, note
    from ..output.progress import step
    from ..profiles.locate import Library

    if only_list:
        if as_json:
            machine.write(report.checks_document())
        else:
            report.show_checks()
        return
    settings: Settings = ctx.obj
    library = Library.default(settings.profiles)
    loaded = library.host(host) if host is not None else None
    if loaded is not None and loaded.value.runtime == "process":
        raise UsageError(
            "it runs the reference engine, which needs neither GPU nor image",
            where=f"host {host}",
            mend="`ddtree doctor` without a host looks at this machine as a GPU host",
        )
    intent: dict[str, Any] = {}
    if loaded is not None or service is not None:
        name = service or (loaded.value.service if loaded else "ddtree")
        intent = intent_of(library.service(name))
    version = installed("ddtree-ops")
    if export is not None:
        write(export, script(intent, version=version))
        if as_json:
            machine.write({"file": export, "intent": intent})
        else:
            data().print(str(export), markup=False, soft_wrap=True)
            note("run it with `python3`, inside the container too; --json prints facts as well")
        return
    with Connections() as connections:
        shell: Shell = connections.to(loaded) if loaded is not None else ThisMachine("here")
        with step(f"looking at {shell.name}"):
            diagnosis = visit(shell, intent, version=version)
    if as_json:
        machine.write(report.document(diagnosis))
    else:
        report.show(diagnosis)
        sys.stdout.flush()
    if diagnosis.blocked:
        raise typer.Exit(PatchMismatch.exit_code)
