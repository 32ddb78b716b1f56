"""`ddtree deploy`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import Settings
from .options import AsJson, DryRun, Host


def deploy(
    ctx: typer.Context,
    host: Host,
    service: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A service profile.  [default: the host's]"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A model profile.  [default: the service's or host's]"),
    ] = None,
    gpu: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="GPU index.  [default: where the service is, or the first free]",
        ),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Tree nodes to verify besides the root.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="N",
            help="TCP port.  [default: the host's base_port + GPU index]",
        ),
    ] = None,
    allow_hybrid_unsafe: Annotated[
        bool,
        typer.Option(
            "--allow-hybrid-unsafe",
            help="Start a tree on a hybrid target even where the engine cannot keep each node's "
            "recurrent state apart. Without effect on an engine that is exact.",
        ),
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Start a service and prove that it generates.

    A service that is on the GPU already is replaced, and started again if the new one fails. A
    service that is as declared, and healthy, is left alone.
    """
    from ..profiles.locate import Library
    from ..rollout.apply import apply, check
    from ..rollout.deployment import Request, prepare
    from ..rollout.report import show_plan, show_result
    from ..services.runtimes import open_runtime
    from ..services.selection import select
    from ..services.spec import Overrides

    settings: Settings = ctx.obj
    library = Library.default(settings.profiles)
    target = library.host(host)
    runtime = open_runtime(target)
    request = Request(service, model, gpu, Overrides(budget, port, allow_hybrid_unsafe))
    if dry_run:
        plan = prepare(library, target, runtime, request)
        show_plan(plan, as_json=as_json)
        check(plan, runtime)
        return
    with runtime.lock(f"deploy {host}"):
        plan = prepare(library, target, runtime, request)
        apply(plan, runtime)
        now = select(runtime.instances(), host=host, service=None, gpu=plan.change.new.spec.gpu)
    show_result(plan, now, as_json=as_json)
