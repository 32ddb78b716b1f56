"""`ddtree image list|copy|prune|lock|diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..settings import Settings
from .options import AsJson, DockerHost, DryRun, LockWait

if TYPE_CHECKING:
    from ..hosts.connection import Connection, Connections
    from ..hosts.docker_api import DockerApi
    from ..profiles.load import Loaded
    from ..profiles.schema import HostProfile

app = typer.Typer(help="Images on hosts: list, copy, prune, lock, diff.")

_Image = Annotated[
    str | None,
    typer.Option("--image", metavar="NAME:TAG", help="Image.  [default: what deploy takes]"),
]


@app.command("list")
def list_images(ctx: typer.Context, host: DockerHost, as_json: AsJson = False) -> None:
    """List the project's images on a host, and which of them are in use."""
    from ..hosts.connection import Connections
    from ..image.store import cached, owned
    from ..output import machine, tables
    from ..output.console import note

    with Connections() as connections:
        api = _api(ctx, connections, host)
        found, layers = owned(api), cached(api)
    if as_json:
        machine.write(found)
        return
    if layers:
        note(
            f"{len(layers)} stages of builds are kept for the next one; "
            f"`ddtree image prune {host} --cache` frees them"
        )
    if not found:
        note(f"host {host} has no image of the project; `ddtree build {host}` makes one")
        return
    rows = [
        (
            ", ".join(image.tags) or None,
            image.identity.removeprefix("sha256:")[:12],
            image.engine,
            image.patch_set and image.patch_set[:12],
            f"{image.size_bytes / 1e6:.0f}",
            "in use" if image.in_use else None,
        )
        for image in found
    ]
    tables.show(("tags", "image", "engine", "patch set", "MB", "use"), rows, numeric="MB")


@app.command()
def copy(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The host that has it.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The host that gets it.")],
    image: _Image = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Copy an image between hosts, without a registry.

    It goes through this machine and is tagged there once all of it has arrived.
    """
    from ..errors import HostUnreachable
    from ..hosts.connection import Connections
    from ..hosts.facts import read_facts
    from ..image.transfer import copy as moved
    from ..image.transfer import planned
    from ..output import machine
    from ..output.console import data, note
    from ..output.progress import step
    from ..services.container import PROJECT_IMAGE

    reference = image or PROJECT_IMAGE
    with Connections() as connections:
        here = _api(ctx, connections, source)
        receiving = connections.to(_host(ctx, target))
        there = _docker(receiving)
        facts = read_facts(receiving, ("system", "engine", "disks"))
        plan = planned(here, there, reference, facts)
        if dry_run:
            if as_json:
                machine.write({"dry_run": True, **plan.document()})
            else:
                data().print(plan.told, markup=False, soft_wrap=True)
            return
        try:
            with step(f"copy {reference} from {source} to {target}") as say:
                done = moved(here, there, plan, say=say)
        except (KeyboardInterrupt, HostUnreachable):
            note(f"nothing was tagged on {target}, which keeps none of it; run it again")
            raise
    if as_json:
        machine.write(done)
    else:
        data().print(f"{done.reference} {done.identity}", markup=False, soft_wrap=True)


@app.command()
def prune(
    ctx: typer.Context,
    host: DockerHost,
    cache: Annotated[
        bool,
        typer.Option("--cache", help="Also the layers from which the next build would go on."),
    ] = False,
    lock_wait: LockWait = 0.0,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove the project's images that nothing uses.

    What has a tag, is in use by a container, or is not of this project stays. Containers that a
    killed `ddtree build` or `doctor` left are removed too. It takes the host's lock for builds.
    """
    from contextlib import ExitStack

    from ..hosts.connection import Connections
    from ..hosts.state import HostState
    from ..image.leftovers import found, sweep
    from ..image.store import cached, owned, prunable, remove
    from ..output import machine, tables
    from ..output.console import note
    from ..rollout.audit import at_build

    with Connections() as connections, ExitStack() as held:
        loaded = _host(ctx, host)
        connection = connections.to(loaded)
        api = _docker(connection)
        if not dry_run:
            # A fresh image has no name until the doctor has looked at it.
            state = HostState(connection, loaded.value.state_directory)
            held.enter_context(at_build(state, purpose="image prune", wait_s=lock_wait))
            left = sweep(api, note, building=True)
        else:
            left = found(api, building=True)
        images = prunable(owned(api))
        layers = cached(api) if cache else ()
        if not dry_run:
            remove(api, [*(i.identity for i in images), *(layer.identity for layer in layers)])
    if as_json:
        machine.write(
            {"host": host, "dry_run": dry_run, "images": images, "layers": layers,
             "containers": left}
        )  # fmt: skip
        return
    rows = [("container", one.name, "") for one in left]
    rows += [("image", i.identity, f"{i.size_bytes / 1e6:.0f}") for i in images]
    rows += [("layers", i.identity, f"{i.size_bytes / 1e6:.0f}") for i in layers]
    if rows:
        tables.show(("what", "which", "MB, base included"), rows, numeric="MB, base included")
    verb = "would remove" if dry_run else "removed"
    note(f"host {host}: {verb} {len(images)} images, {len(layers)} stages of builds, "
         f"{len(left)} containers; layers that others share stay")  # fmt: skip


@app.command()
def lock(
    ctx: typer.Context,
    host: DockerHost,
    image: _Image = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the lock there.  [default: print it]"),
    ] = None,
) -> None:
    """Say what is in an image.

    Versions, hashes, and what its compiled libraries need.
    """
    import json

    from ..hosts.connection import Connections
    from ..output import machine
    from ..output.console import data
    from ..output.files import write_whole

    with Connections() as connections:
        document = _lock(ctx, connections, host, image)
    if output is None:
        machine.write(document)
        return
    write_whole(output, json.dumps(document, indent=1) + "\n")
    data().print(str(output), markup=False, soft_wrap=True)


@app.command()
def diff(
    ctx: typer.Context,
    first: Annotated[str, typer.Argument(metavar="A", help="A host, or the file of a lock.")],
    second: Annotated[str, typer.Argument(metavar="B", help="A host, or the file of a lock.")],
    image: _Image = None,
    as_json: AsJson = False,
) -> None:
    """Name every difference between two images.

    Of two hosts, or of a host and a lock. Exit code 8 if there is one.
    """
    from ..errors import PatchMismatch
    from ..hosts.connection import Connections
    from ..image.lock import compared
    from ..output import machine, tables
    from ..output.console import note

    with Connections() as connections:
        sides = [_side(ctx, connections, one, image) for one in (first, second)]
    drifts = compared(*sides)
    if as_json:
        machine.write({"same": not drifts, "drift": drifts})
    elif drifts:
        tables.show(("what", first, second), [(d.what, d.first, d.second) for d in drifts])
    else:
        note(f"{first} and {second} have the same image: {sides[0]['image']}")
    if drifts:
        raise typer.Exit(PatchMismatch.exit_code)


def _side(
    ctx: typer.Context, connections: Connections, word: str, image: str | None
) -> dict[str, Any]:
    from ..image.lock import read

    file = Path(word)
    return read(file) if file.is_file() else _lock(ctx, connections, word, image)


def _lock(
    ctx: typer.Context, connections: Connections, host: str, image: str | None
) -> dict[str, Any]:
    from importlib.metadata import version as installed

    from ..image.inside import look_inside
    from ..image.lock import locked
    from ..image.transfer import described
    from ..output.console import note
    from ..output.progress import step
    from ..services.container import PROJECT_IMAGE

    api = _api(ctx, connections, host)
    found = described(api, image or PROJECT_IMAGE)
    with step(f"looking into {image or PROJECT_IMAGE} on {host}"):
        inside = look_inside(
            api, found["Id"], {}, version=installed("ddtree-ops"), device=None, tell=note
        )
    return locked(found, inside.facts)


def _host(ctx: typer.Context, name: str) -> Loaded[HostProfile]:
    from ..errors import UsageError
    from ..profiles.locate import Library

    settings: Settings = ctx.obj
    loaded = Library.default(settings.profiles).host(name)
    if loaded.value.runtime != "docker":
        raise UsageError("it runs no containers", where=f"host {name}")
    return loaded


def _api(ctx: typer.Context, connections: Connections, host: str) -> DockerApi:
    return _docker(connections.to(_host(ctx, host)))


def _docker(connection: Connection) -> DockerApi:
    from ..hosts.docker_api import DockerApi

    return DockerApi(connection)
