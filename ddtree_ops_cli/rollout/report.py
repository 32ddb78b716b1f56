"""How a plan and what came of it are shown."""

from __future__ import annotations

import shlex
from typing import Any

from ..output import machine, tables
from ..output.console import data, note
from ..services.overview import summary
from ..services.runtimes import Instance
from .plan import Plan


def show_plan(plan: Plan, *, as_json: bool) -> None:
    """The steps, and the whole command line that would start the engine."""
    if as_json:
        machine.write(_plan_document(plan))
        return
    console = data()
    if not plan.steps:
        console.print(f"nothing to change: {plan.change.old.title} is healthy and as declared")
        return
    console.print(plan.title)
    tables.show(
        ["", "step", "changes", "why"],
        [
            [number, step.does, "yes" if step.changes else "no", step.why]
            for number, step in enumerate(plan.steps, start=1)
        ],
    )
    if plan.change.start is not None:
        console.print(f"\n{shlex.join(plan.change.start.argv)}", markup=False, soft_wrap=True)


def show_result(plan: Plan, now: Instance | None, *, as_json: bool) -> None:
    """What runs on the GPU after the plan was carried out."""
    if as_json:
        machine.write({**_plan_document(plan), "now": None if now is None else summary(now)})
    elif now is None:
        note(f"{plan.change.old.title} is stopped")
    else:
        unchanged = "" if plan.steps else "nothing to change, healthy and as declared: "
        note(f"{unchanged}{now.title} at {now.url}/v1, model {now.labels.served_name}")


def _plan_document(plan: Plan) -> dict[str, Any]:
    start = plan.change.start
    return {
        "playbook": plan.playbook,
        "title": plan.title,
        "steps": list(plan.steps),
        "argv": None if start is None else list(start.argv),
    }
