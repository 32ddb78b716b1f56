"""`ddtree build`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..settings import Settings
from .options import AsJson, DockerHost, DryRun, LockWait

if TYPE_CHECKING:
    from ..image.plan import BuildPlan


def build(
    ctx: typer.Context,
    host: DockerHost,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="IMAGE",
            help="Image to start from. SGLang's own, lmsysorg/sglang:v0.5.17-cu130, has the "
            "packages: --packages base.  [default: the Dockerfile's, of CUDA alone]",
        ),
    ] = None,
    packages: Annotated[
        str,
        typer.Option(
            metavar="locked|base",
            help="locked: install every package by the hash in the lock. base: the base has them.",
        ),
    ] = "locked",
    archs: Annotated[
        str | None,
        typer.Option(
            metavar="CAPABILITY",
            help="GPU to compile for at run time: 12.0a (RTX PRO 6000), 10.0a (B200), 9.0a (H200)."
            "  [default: the Dockerfile's]",
        ),
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(metavar="NAME:TAG", help="Name of the image.  [default: what deploy takes]"),
    ] = None,
    wheel: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="SGLang's wheel.  [default: fetched by pip, once]"),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHECK",
            help="Tag the image though this blocking check fails in it. Repeat it for more.",
        ),
    ] = None,
    lock_wait: LockWait = 0.0,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Build the image on a host, by the host's own Docker.

    SGLang is patched here and sent; the image is tagged once the doctor is content with it, else
    nothing is, and the exit code is 8. What fails or is interrupted can be run again: it goes on
    from the steps that were done.
    """
    from datetime import UTC, datetime
    from importlib.metadata import version as installed

    from platformdirs import user_cache_path, user_state_path

    from ..errors import HostUnreachable, UsageError
    from ..hosts.connection import Connections
    from ..hosts.docker_api import DockerApi
    from ..hosts.state import HostState
    from ..image.build import BuildFailed, logged, prepared
    from ..image.build import build as made
    from ..image.context import assembled
    from ..image.recipe import recipe_of
    from ..image.wheel import checked, fetched, requirements
    from ..output import machine
    from ..output.console import data, note
    from ..output.progress import step
    from ..profiles.locate import Library
    from ..rollout.audit import at_build

    settings: Settings = ctx.obj
    recipe = recipe_of(
        base=base, packages=packages, cuda_archs=archs, tag=tag, accepted=tuple(accept or ())
    )
    loaded = Library.default(settings.profiles).host(host)
    if loaded.value.runtime != "docker":
        raise UsageError("it runs no containers", where=f"host {host}")
    version = installed("ddtree-ops")
    with step("SGLang's wheel"):
        source = checked(wheel) if wheel else fetched(user_cache_path("ddtree") / "wheels")
    intent = {"lock": requirements()} if recipe.packages == "locked" else {}
    with Connections() as connections, assembled(source, intent, version=version) as context:
        connection = connections.to(loaded)
        plan = prepared(connection, recipe, context, version=version, wheel=source.name)
        if dry_run:
            _show(plan, as_json, dry_run=True)
            return
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        file = user_state_path("ddtree") / "builds" / f"build-{host}-{stamp}.log"
        state = HostState(connection, loaded.value.state_directory)
        try:
            with (
                at_build(state, purpose=f"build {recipe.tag}", wait_s=lock_wait),
                logged(file) as log,
                step(f"build {recipe.tag}") as say,
            ):
                note(f"the log is {file}")
                identity = made(DockerApi(connection), plan, context, log=log, say=say, tell=note)
        except BuildFailed as failed:
            for line in failed.last:
                note(f"  {line}")
            raise
        except (KeyboardInterrupt, HostUnreachable):
            note(
                f"host {host}: {recipe.tag} is as it was; finished steps stay there, and the next "
                "build goes on from them (`ddtree image prune --cache` frees them)"
            )
            raise
    if as_json:
        machine.write(
            {"host": host, "image": identity, "tag": recipe.tag, "log": file,
             "context": plan.context_digest}
        )  # fmt: skip
    else:
        data().print(f"{recipe.tag} {identity}", markup=False, soft_wrap=True)


def _show(plan: BuildPlan, as_json: bool, *, dry_run: bool) -> None:
    from ..output import machine
    from ..output.console import data, note

    if as_json:
        machine.write(
            {
                "host": plan.host,
                "dry_run": dry_run,
                "context": plan.context_digest,
                "steps": plan.steps,
                "arguments": plan.arguments,
                "needed_bytes": plan.needed_bytes,
            }
        )
        return
    for line in plan.steps:
        data().print(line, markup=False, soft_wrap=True)
    note(f"host {plan.host}: would do this; about {plan.needed_bytes / 1e9:.1f} GB are needed")
