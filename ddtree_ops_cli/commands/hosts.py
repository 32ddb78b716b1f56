"""`ddtree hosts list|add`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import Settings

app = typer.Typer(help="The hosts: which are known, and how to add one.")


@app.command("list")
def list_hosts(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the hosts. `ddtree status` visits all but the templates."""
    from ..errors import ProfileError
    from ..output import machine, tables
    from ..output.console import warn
    from ..profiles.locate import Library
    from ..profiles.problems import shown

    settings: Settings = ctx.obj
    library = Library.default(settings.profiles)
    entries = [entry for entry in library.list("hosts") if entry.hidden_by is None]
    found = []
    for entry in entries:
        try:
            host = library.load("hosts", entry.name).value
        except ProfileError as error:
            warn(str(error))
            host = None
        found.append((entry, host))
    if as_json:
        machine.write(
            [
                {
                    "name": entry.name,
                    "file": entry.file,
                    "valid": host is not None,
                    "address": host and host.address,
                    "runtime": host and host.runtime,
                    "template": host and host.template,
                    "description": host and host.description,
                }
                for entry, host in found
            ]
        )
        return
    rows = []
    for entry, host in found:
        address = mark = None
        if host is not None:
            address = "this machine" if host.runtime == "process" else host.address
            mark = "template" if host.template else None
        runtime = host.runtime if host else "invalid"
        rows.append((entry.name, address, runtime, mark, shown(entry.file)))
    tables.show(("name", "address", "runtime", "template", "file"), rows)


@app.command()
def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="What you will call the host.")],
    address: Annotated[
        str, typer.Option(help="Host name, IP address or name from your SSH configuration.")
    ],
    user: Annotated[
        str | None, typer.Option(help="Login name.  [default: your SSH configuration's]")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="N",
            help="Port of the SSH server.  [default: your SSH configuration's]",
        ),
    ] = None,
    source: Annotated[
        str, typer.Option("--from", metavar="HOST", help="The host profile to copy.")
    ] = "ct200",
    model: Annotated[
        str | None, typer.Option(help="Model profile to serve.  [default: the copied one's]")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Show the file and write nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a host profile of your own, and print where it is."""
    from ..output import machine
    from ..output.console import data, note, warn
    from ..profiles.locate import Library
    from ..profiles.new_host import draft, write
    from ..profiles.problems import shown

    settings: Settings = ctx.obj
    library = Library.default(settings.profiles)
    host = draft(library, name, address=address, user=user, port=port, model=model, source=source)
    if not dry_run:
        write(host, force=force)
    if as_json:
        machine.write({"name": name, "file": host.file, "written": not dry_run, "text": host.text})
    elif dry_run:
        data().print(host.text, end="", markup=False, soft_wrap=True)
        note(f"would write {host.file}")
    else:
        data().print(str(host.file), markup=False, soft_wrap=True)
    used = next((e.file for e in library.list("hosts") if e.name == name), host.file)
    if not dry_run and used.resolve() != host.file.resolve():
        warn(f"{shown(used)} comes first on the search path and hides the new file")
