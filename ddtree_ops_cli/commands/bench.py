"""`ddtree bench`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ..settings import Settings
from .options import DryRun, Gpu, Host, Service


def bench(
    ctx: typer.Context,
    host: Host,
    compare: Annotated[
        Literal["linear", "plain"],
        typer.Option(help="What the tree is measured against: linear DFlash, or no drafts at all."),
    ] = "linear",
    service: Service = None,
    gpu: Gpu = None,
    suite: Annotated[
        str,
        typer.Option(metavar="NAME", help="story, held-out, or a file of JSON lines with prompts."),
    ] = "story",
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Rounds; under 10 there is no verdict.")
    ] = 10,
    max_tokens: Annotated[
        int, typer.Option(min=2, metavar="N", help="The longest answer, in tokens.")
    ] = 128,
    temperature: Annotated[
        float, typer.Option(metavar="T", help="From 0 to 2; at 0, greedy, texts are compared.")
    ] = 0.0,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Of the order of the prompts, and of sampling.")
    ] = 0,
    busy_ok: Annotated[
        bool, typer.Option("--busy-ok", help="Measure although others are being served.")
    ] = False,
    alternate: Annotated[
        bool,
        typer.Option(
            "--alternate",
            help="Where no GPU is free, let the two take turns on one: the service is away while "
            "the other has its turn, and runs again at the end.",
        ),
    ] = False,
    json_to: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Where every measurement is written; - prints it instead of the table.  "
            "[default: a new file in the state directory]",
        ),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Measure whether the tree pays.

    Both services answer the same prompts in turn, round by round, and the ratio of their decode
    rates is given with its 95 % interval. A service to compare with that does not run is started
    for it where the host allows that (temporary_services in its profile).
    """
    from ..bench.answer import Shape
    from ..bench.run import Settings as RunSettings
    from ..bench.session import Wanted, run_bench, show_plan
    from ..errors import UsageError
    from ..profiles.locate import Library

    # Not the option's own range: it lets `nan` through.
    if not 0 <= temperature <= 2:
        raise UsageError("--temperature is no number from 0 to 2")
    settings: Settings = ctx.obj
    shape = Shape(max_tokens, temperature)
    measured = RunSettings(rounds, seed, shape, busy_ok)
    wanted = Wanted(host, service, gpu, compare, suite, measured, alternate)
    library = Library.default(settings.profiles)
    if dry_run:
        show_plan(library, wanted, json_to=json_to)
    else:
        run_bench(library, wanted, json_to=json_to)
