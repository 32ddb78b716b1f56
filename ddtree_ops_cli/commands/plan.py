"""`ddtree plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..settings import Settings
from .options import AsJson, Budget, Gpu, Host, ModelProfile, ServiceProfile


def plan(
    ctx: typer.Context,
    host: Host,
    gpu: Gpu = None,
    service: ServiceProfile = None,
    model: ModelProfile = None,
    budget: Budget = None,
    requests: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Requests that must run at once, as engine.max_running_requests would say.",
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Tokens that each of them may have, as engine.context_length would say.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what of a service fits into a GPU's memory.

    Each part with its size, as the engine divides it, with the largest budget and the most
    requests at once. Of the models the host needs config.json and the target's weight index only;
    exit code 1 if the weights are not whole yet, or fit on no GPU. Nothing is started.
    """
    from ..output import machine
    from ..output.console import warn
    from ..profiles.locate import Library
    from ..services.memory_plan import Wanted
    from ..services.memory_report import document, show
    from ..services.memory_survey import refuse, survey
    from ..services.spec import Overrides

    settings: Settings = ctx.obj
    found = survey(
        Library.default(settings.profiles),
        host,
        service=service,
        model=model,
        gpu=gpu,
        overrides=Overrides(budget=budget),
        wanted=Wanted(requests, context),
    )
    if as_json:
        machine.write(document(found.spec, found.models, found.options, found.columns))
    else:
        show(found.columns)
        for column in found.columns:
            for warning in column.warnings:
                warn(f"{column.title}: {warning}")
    refuse(found)
