"""`ddtree hosts list|add|facts|trust`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..settings import Settings
from .options import AsJson, DryRun, Host

if TYPE_CHECKING:
    from ..hosts.host_keys import HostKey
    from ..hosts.ssh_config import Hop

app = typer.Typer(help="The hosts: list, add, trust, facts.")


@app.command("list")
def list_hosts(
    ctx: typer.Context,
    as_json: AsJson = False,
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
    name: Annotated[str, typer.Argument(metavar="NAME", help="What you will call the host.")],
    address: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Host name, IP address or name from your SSH configuration."
        ),
    ],
    user: Annotated[
        str | None,
        typer.Option(metavar="USER", help="Login name.  [default: your SSH configuration's]"),
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
        str | None,
        typer.Option(metavar="NAME", help="Model profile to serve.  [default: the copied one's]"),
    ] = None,
    dry_run: DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    as_json: AsJson = False,
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


@app.command()
def facts(
    ctx: typer.Context,
    host: Host,
    as_json: AsJson = False,
) -> None:
    """Show what is true on a host now.

    Its GPUs, container engine, disks, memory, clock and ports.
    """
    from ..hosts.connection import Connections
    from ..hosts.facts import read_facts
    from ..hosts.report import document, show
    from ..hosts.shell import ThisMachine
    from ..output import machine
    from ..profiles.locate import Library

    settings: Settings = ctx.obj
    loaded = Library.default(settings.profiles).host(host)
    with Connections() as connections:
        local = loaded.value.runtime == "process"
        found = read_facts(ThisMachine(host) if local else connections.to(loaded))
    if as_json:
        machine.write(document(host, found))
    else:
        show(found)


@app.command()
def trust(
    ctx: typer.Context,
    host: Annotated[
        str, typer.Argument(metavar="HOST", help="The host, with the jump hosts on the way to it.")
    ],
    fingerprint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SHA256:...",
            help="Trust the key with this fingerprint, without asking. Repeat it for jump hosts "
            "or for more types of key.",
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Show a host's keys and make them known.

    Once you agree, they are added to your known_hosts; jump hosts' keys too.
    """
    import sys

    from ..errors import DdtreeError, HostUnreachable, UsageError
    from ..hosts.connection import Connections
    from ..hosts.report import trust_document
    from ..hosts.trust import trust as make_known
    from ..output import machine
    from ..output.console import data, note
    from ..profiles.locate import Library

    settings: Settings = ctx.obj
    loaded = Library.default(settings.profiles).host(host)
    wanted = set(fingerprint or ())
    if bad := [word for word in wanted if not word.startswith("SHA256:")]:
        raise UsageError(f"'{bad[0]}' is no fingerprint", mend="it begins with SHA256:")

    def approve(
        server: Hop, known: Sequence[HostKey], keys: Sequence[HostKey]
    ) -> Sequence[HostKey]:
        note(f"{server.title} ({server.known_as}) shows:")
        for key in keys:
            note(f"  {key.fingerprint} ({key.word})")
        if wanted:
            chosen = [key for key in keys if key.fingerprint in wanted]
            if not chosen and not any(key.fingerprint in wanted for key in known):
                raise HostUnreachable(
                    f"{server.title} shows no key with a fingerprint that you gave",
                    where=f"host {host}",
                    mend="nothing was added; somebody may be in between",
                )
            return chosen
        if dry_run:
            return keys
        if not sys.stdin.isatty():
            if known:
                return ()
            raise UsageError(
                "there is no terminal to ask on",
                where=f"host {host}",
                mend="name the key that you expect with --fingerprint",
            )
        if not typer.confirm("Are these the host's own keys?", err=True):
            raise DdtreeError("not trusted; nothing was added", where=f"host {host}")
        return keys

    with Connections() as connections:
        done = make_known(
            connections, connections.route(loaded), approve, host=host, dry_run=dry_run
        )
    if as_json:
        machine.write(trust_document(host, done, written=not dry_run))
        return
    for server in done:
        if not server.added:
            note(
                f"{server.server} is known already ({', '.join(key.word for key in server.known)})"
            )
        for key in server.added:
            data().print(f"{server.known_as} {key.kind} {key.fingerprint}", soft_wrap=True)
        if server.added:
            note(f"{'would be ' if dry_run else ''}added to {server.file}")
