"""The arguments and options that several commands share, so that they mean the same in each."""

from __future__ import annotations

from typing import Annotated

import typer

Host = Annotated[str, typer.Argument(metavar="HOST", help="A host profile; `lab` is this machine.")]
Service = Annotated[str | None, typer.Option(metavar="NAME", help="Only this service.")]
Gpu = Annotated[int | None, typer.Option(min=0, metavar="N", help="Only on this GPU.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Show what would be done and change nothing.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
