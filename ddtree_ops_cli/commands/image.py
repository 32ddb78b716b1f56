"""`ddtree image list|copy|prune|lock|diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..settings import Settings
from .options import AsJson, DockerHost, DryRun

if TYPE_CHECKING:
    from ..hosts.connection import Connections
    from ..hosts.docker_api import DockerApi

app = typer.Typer(help="Images on hosts: list, copy, prune, lock, diff.")

_Image = Annotated[
    str | None,
    typer.Option("--image", metavar="NAME:TAG", help="Image.  [default: what deploy takes]"),
]


@app.command("list")
def list_images(ctx: typer.Context, host: DockerHost, as_json: AsJson = False) -> None:
    """List the project's images on a host, and which of them are in use."""
    from ..hosts.connection import Connections
    from ..image.store import owned
    from ..output import machine, tables

    with Connections() as connections:
        found = owned(_api(ctx, connections, host))
    if as_json:
        machine.write(found)
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
    from ..hosts.connection import Connections
    from ..image.transfer import copy as moved
    from ..image.transfer import planned
    from ..output import machine
    from ..output.console import data
    from ..output.progress import step
    from ..services.container import PROJECT_IMAGE

    reference = image or PROJECT_IMAGE
    with Connections() as connections:
        here, there = _api(ctx, connections, source), _api(ctx, connections, target)
        plan = planned(here, there, reference)
        if dry_run:
            if as_json:
                machine.write({"dry_run": True, **plan.document()})
            else:
                data().print(plan.told, markup=False, soft_wrap=True)
            return
        with step(f"copy {reference} from {source} to {target}") as say:
            done = moved(here, there, plan, say=say)
    if as_json:
        machine.write(done)
    else:
        data().print(f"{done.reference} {done.identity}", markup=False, soft_wrap=True)


@app.command()
def prune(
    ctx: typer.Context, host: DockerHost, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Remove the project's images that nothing uses.

    What has a tag, is in use by a container, or is not of this project stays.
    """
    from ..hosts.connection import Connections
    from ..image.store import owned, prunable, remove
    from ..output import machine
    from ..output.console import data, note

    with Connections() as connections:
        api = _api(ctx, connections, host)
        images = prunable(owned(api))
        if not dry_run:
            for one in images:
                remove(api, one)
    freed = sum(image.size_bytes for image in images)
    if as_json:
        machine.write({"host": host, "removed": [] if dry_run else images, "would_remove": images})
        return
    for one in images:
        data().print(one.identity, markup=False, soft_wrap=True)
    verb = "would remove" if dry_run else "removed"
    note(f"{verb} {len(images)} images, up to {freed / 1e6:.0f} MB; shared layers stay")


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
    from ..output.progress import step
    from ..services.container import PROJECT_IMAGE

    api = _api(ctx, connections, host)
    found = described(api, image or PROJECT_IMAGE)
    with step(f"looking into {image or PROJECT_IMAGE} on {host}"):
        inside = look_inside(api, found["Id"], {}, version=installed("ddtree-ops"), device=None)
    return locked(found, inside.facts)


def _api(ctx: typer.Context, connections: Connections, host: str) -> DockerApi:
    from ..errors import UsageError
    from ..hosts.docker_api import DockerApi
    from ..profiles.locate import Library

    settings: Settings = ctx.obj
    loaded = Library.default(settings.profiles).host(host)
    if loaded.value.runtime != "docker":
        raise UsageError("it runs no containers", where=f"host {host}")
    return DockerApi(connections.to(loaded))
