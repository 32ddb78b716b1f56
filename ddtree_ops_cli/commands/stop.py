"""`ddtree stop`."""

from __future__ import annotations

import typer

from ..settings import Settings
from .options import AsJson, DryRun, Gpu, Host, Service


def stop(
    ctx: typer.Context,
    host: Host,
    service: Service = None,
    gpu: Gpu = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Stop a service with all its processes.

    Its log stays until the next start on this GPU.
    """
    from ..profiles.locate import Library
    from ..rollout.apply import apply
    from ..rollout.operations import Change
    from ..rollout.plan import plan
    from ..rollout.playbook import load
    from ..rollout.report import show_plan, show_result
    from ..services.runtimes import open_runtime
    from ..services.selection import select

    settings: Settings = ctx.obj
    runtime = open_runtime(Library.default(settings.profiles).host(host))
    with runtime.lock(f"stop {host}"):
        chosen = select(runtime.instances(), host=host, service=service, gpu=gpu)
        planned = plan(load("stop"), Change(previous=chosen, start=None))
        if dry_run:
            show_plan(planned, as_json=as_json)
            return
        apply(planned, runtime)
    show_result(planned, None, as_json=as_json)
