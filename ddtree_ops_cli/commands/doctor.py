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
        typer.Argument(metavar="HOST", help="A host profile.  [default: this machine]"),
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
    image: Annotated[
        str | None,
        typer.Option(
            metavar="NAME:TAG",
            help="Look into this image on the host.  [default: what deploy takes, if it is there]",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what keeps a host or image from running the engine.

    On a host it looks into the image too, in a container of its own with one GPU. Reads only. Exit
    code 8 if a blocking check fails.
    """
    from importlib.metadata import version as installed

    from ..doctor import report
    from ..doctor.export import script, write
    from ..doctor.intent import intent_of
    from ..doctor.visit import visit
    from ..errors import DdtreeError, PatchMismatch, UsageError
    from ..hosts.connection import Connections
    from ..hosts.shell import ThisMachine
    from ..output import machine
    from ..output.console import data, note
    from ..output.progress import step
    from ..profiles.locate import Library
    from ..services.container import PROJECT_IMAGE

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
    if image is not None and loaded is None:
        raise UsageError("--image is for a host", mend="name the host: `ddtree doctor HOST`")
    intent: dict[str, Any] = {}
    used = image
    if loaded is not None or service is not None:
        name = service or (loaded.value.service if loaded else "ddtree")
        profile = library.service(name)
        intent = intent_of(profile)
        used = image or profile.value.container.image or PROJECT_IMAGE
    version = installed("ddtree-ops")
    if export is not None:
        write(export, script(intent, version=version))
        if as_json:
            machine.write({"file": export, "intent": intent})
        else:
            data().print(str(export), markup=False, soft_wrap=True)
            note("run it with `python3`, inside the container too; --json prints facts as well")
        return
    places = []
    with Connections() as connections:
        if loaded is None:
            with step("looking at this machine"):
                places.append(visit(ThisMachine("this machine"), intent, version=version))
        else:
            from ..image.inside import on_host

            connection = connections.to(loaded)
            with step(f"looking at host {loaded.name}"):
                places.append(visit(connection, intent, version=version))
            with step(f"looking into image {used}") as say:
                inside = on_host(connection, str(used), intent, version=version, tell=note)
                say("there is none on the host" if inside is None else "with one GPU")
            if inside is not None:
                places.append(inside)
            elif image is not None:
                raise DdtreeError(f"image {image} is not there", where=f"host {loaded.name}")
    if as_json:
        machine.write(report.document(places))
    else:
        for place in places:
            report.show(place)
    if any(place.blocked for place in places):
        raise typer.Exit(PatchMismatch.exit_code)
