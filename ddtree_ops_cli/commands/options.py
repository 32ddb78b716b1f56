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
Hosts = Annotated[
    list[str],
    typer.Argument(
        metavar="HOST...", help="Host profiles, or @GROUP for all hosts of a group; `lab` is here."
    ),
]
LockWait = Annotated[
    float,
    typer.Option(
        "--lock-wait",
        min=0,
        metavar="SECONDS",
        help="Wait as long for somebody else's work on the GPU.  [default: not at all]",
        show_default=False,
    ),
]
Why = Annotated[
    str,
    typer.Option(
        "--why",
        metavar="TEXT",
        help="A reason, for the lock and the audit log.",
        show_default=False,
    ),
]
MaxParallel = Annotated[
    int, typer.Option("--max-parallel", min=1, metavar="N", help="Hosts to work on at once.")
]
MaxFailures = Annotated[
    int | None,
    typer.Option(
        "--max-failures", min=1, metavar="N", help="Begin no further host after so many failed."
    ),
]
ServiceProfile = Annotated[
    str | None, typer.Option(metavar="NAME", help="A service profile.  [default: the host's]")
]
ModelProfile = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A model profile.  [default: the service's or host's]"),
]
Budget = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Tree nodes to verify besides the root.")
]
