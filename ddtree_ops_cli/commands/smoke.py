"""`ddtree smoke`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import Settings
from .options import AsJson, DryRun, Gpu, Host, Service


def smoke(
    ctx: typer.Context,
    host: Host,
    service: Service = None,
    gpu: Gpu = None,
    start_linear: Annotated[
        bool | None,
        typer.Option(
            "--start-linear/--no-start-linear",
            help="Where no linear service of the same model runs, start one on a free GPU for the "
            "parity check and stop it after.  [default: the host's temporary_services]",
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Prove that a service is coherent.

    What it generates must be what its target alone would say, the same every time, and drafted.
    """
    from contextlib import ExitStack

    from ..engine_api.client import EngineClient
    from ..errors import Unhealthy
    from ..hosts.connection import Connections
    from ..output import machine, tables
    from ..output.progress import step
    from ..profiles.locate import Library
    from ..rollout.apply import check
    from ..rollout.companion import find_companion, present
    from ..services.runtimes import open_runtime
    from ..services.selection import select
    from ..smoke import plan
    from ..smoke.suite import run_suite

    settings: Settings = ctx.obj
    library = Library.default(settings.profiles)
    target = library.host(host)
    may_start = target.value.temporary_services if start_linear is None else start_linear
    with ExitStack() as stack:
        runtime = open_runtime(target, stack.enter_context(Connections()))
        chosen = select(runtime.instances(), host=host, service=service, gpu=gpu)
        companion = find_companion(
            library, target, runtime, chosen, service="dflash-linear", may_start=may_start
        )
        if dry_run:
            if as_json:
                machine.write(plan.document(chosen, companion))
            else:
                plan.show(chosen, companion)
            if companion is not None and companion.start is not None:
                check(companion.start, runtime)
            return
        beside = companion and stack.enter_context(present(companion, library, target, runtime))
        linear = stack.enter_context(EngineClient(runtime.reach(beside))) if beside else None
        engine = stack.enter_context(EngineClient(runtime.reach(chosen)))
        say = stack.enter_context(step(f"smoke {chosen.title}"))
        outcomes = run_suite(
            engine,
            served_name=chosen.labels.served_name,
            linear=linear,
            on_outcome=lambda outcome: say(f"{outcome.check} {outcome.verdict}"),
        )
        passed = sum(outcome.verdict == "passed" for outcome in outcomes)
        say(f"{passed} of {len(outcomes)} checks passed")
    if as_json:
        machine.write({"host": host, "service": chosen.labels.service, "checks": outcomes})
    else:
        tables.show(
            ("check", "verdict", "found"),
            [(outcome.check, outcome.verdict, outcome.detail) for outcome in outcomes],
        )
    failed = [outcome.check for outcome in outcomes if outcome.verdict == "failed"]
    if failed:
        raise Unhealthy(f"smoke failed: {', '.join(failed)}", where=chosen.title)
