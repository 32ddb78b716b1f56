"""`ddtree playbook list|show|plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..settings import Settings
from .options import AsJson, Gpu, Hosts, Service

if TYPE_CHECKING:
    from ..profiles.load import Loaded
    from ..profiles.schema import HostProfile
    from ..rollout.run import Outcome
    from ..services.runtimes import Runtime

app = typer.Typer(help="The order of steps of each change: list, show, plan.")
Name = Annotated[str, typer.Argument(metavar="PLAYBOOK", help="Its name, as `list` has it.")]


@app.command("list")
def list_playbooks(as_json: AsJson = False) -> None:
    """List the playbooks."""
    from ..output import machine, tables
    from ..rollout.playbook import load, names

    found = [load(name) for name in names()]
    if as_json:
        machine.write([{"name": p.name, "description": p.description} for p in found])
    else:
        tables.show(("playbook", "does"), [(p.name, p.description) for p in found])


@app.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show the steps of a playbook, and why each stands where it does."""
    from ..output import machine, tables
    from ..rollout.operations import OPERATIONS
    from ..rollout.playbook import load

    playbook = load(name)
    if as_json:
        machine.write(playbook)
        return
    tables.show(
        ("", "step", "changes", "why"),
        [
            (number, s.operation, "yes" if OPERATIONS[s.operation].changes else "no", s.why)
            for number, s in enumerate(playbook.steps, start=1)
        ],
    )


@app.command()
def plan(
    ctx: typer.Context,
    name: Name,
    hosts: Hosts,
    service: Service = None,
    gpu: Gpu = None,
    as_json: AsJson = False,
) -> None:
    """Show what a playbook would do on hosts now.

    The same as --dry-run of its command. `deploy` and `replace` are two ways of one command: what
    is on the GPU decides between them.
    """
    from ..errors import UsageError
    from ..profiles.locate import Library
    from ..rollout.deployment import Request
    from ..rollout.many import Spread, Work, carry_out
    from ..rollout.playbook import load
    from ..rollout.run import Manner, deploy, rollback, stop

    settings: Settings = ctx.obj
    library = Library.default(settings.profiles)
    manner = Manner(dry_run=True)
    ways: dict[str, Work] = {
        "rollback": lambda host, runtime: rollback(
            host, runtime, service=service, gpu=gpu, to=None, manner=manner
        ),
        "stop": lambda host, runtime: stop(host, runtime, service=service, gpu=gpu, manner=manner),
    }
    wanted = load(name).name
    if wanted == "forget":
        raise UsageError(
            "forget has no command of its own: bench and smoke end by it what they started",
            mend="see `ddtree bench HOST --dry-run`",
        )

    def deploy_by(host: Loaded[HostProfile], runtime: Runtime) -> Outcome:
        outcome = deploy(library, host, runtime, Request(service, None, gpu), manner)
        if outcome.plan.playbook != wanted:
            raise UsageError(
                f"a deploy would not follow {wanted} but {outcome.plan.playbook}",
                where=f"host {host.name}, GPU {outcome.plan.change.gpu}",
            )
        return outcome

    carry_out(
        library,
        hosts,
        ways.get(wanted, deploy_by),
        spread=Spread(),
        dry_run=True,
        as_json=as_json,
    )
