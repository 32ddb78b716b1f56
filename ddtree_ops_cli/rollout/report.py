"""How a plan and what came of it are shown."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import DdtreeError
from ..output import machine, tables
from ..output.console import data, fail, note, speaking_of
from ..services.drift import Drift, drift
from ..services.overview import summary
from .plan import Plan
from .run import Outcome

if TYPE_CHECKING:
    from ..services.container import Container

_ACCESS = {"gpus": "--gpus", "cdi": "CDI"}


def show(found: Mapping[str, Outcome | DdtreeError], *, dry_run: bool, as_json: bool) -> None:
    """What was done, or would be, on each host; JSON is `{host: {...} or {"error": text}}`."""
    if as_json:
        machine.write({name: _document(outcome) for name, outcome in found.items()})
        return
    several = len(found) > 1
    for name, outcome in found.items():
        if isinstance(outcome, DdtreeError):
            # The error of a single host ends the command, which says it then.
            if several:
                fail(f"{name}: {outcome}")
        elif dry_run:
            if several:
                data().print(f"\n{name}", style="bold")
            show_plan(outcome.plan)
        else:
            with speaking_of(name if several else None):
                _say_result(outcome)


def show_plan(plan: Plan) -> None:
    """The steps, and the whole command line that would start the engine."""
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
    for change in _drift(plan):
        console.print(f"{change.key}: {change.runs} -> {change.declared}", markup=False)
    if plan.change.start is not None:
        launch = plan.change.start.launch
        if launch.container is not None:
            console.print()
            tables.show(("container", ""), _container(launch.container))
        console.print(f"\n{shlex.join(launch.argv)}", markup=False, soft_wrap=True)


def _say_result(outcome: Outcome) -> None:
    now = outcome.now
    if now is None:
        note(f"{outcome.plan.change.old.title} is stopped")
    else:
        unchanged = "" if outcome.plan.steps else "nothing to change, healthy and as declared: "
        there = f" on {now.labels.host}; from here: {now.tunnel}" if now.tunnel else ""
        note(f"{unchanged}{now.title}, model {now.labels.served_name}, at {now.url}/v1{there}")


def _document(outcome: Outcome | DdtreeError) -> dict[str, Any]:
    if isinstance(outcome, DdtreeError):
        return {"error": str(outcome)}
    now = None if outcome.now is None else summary(outcome.now)
    return {**plan_document(outcome.plan), "now": now}


def plan_document(plan: Plan) -> dict[str, Any]:
    """A plan as JSON."""
    start = plan.change.start
    return {
        "playbook": plan.playbook,
        "title": plan.title,
        "steps": list(plan.steps),
        "drift": _drift(plan),
        "argv": None if start is None else list(start.launch.argv),
        "container": None if start is None else start.launch.container,
    }


def _container(container: Container) -> list[tuple[str, object]]:
    limits = [f"{name} {limit}" for name, limit in container.ulimits.items()]
    if container.memory_bytes is not None:
        limits.append(f"memory {container.memory_bytes} bytes")
    return [
        ("name", container.name),
        ("image", f"{container.image} ({container.image_digest})"),
        ("GPU", f"{container.gpu_device} by {_ACCESS[container.gpu_access]}"),
        ("port", f"{container.bind}:{container.port}"),
        *[
            ("mount", f"{mount.source} at {mount.target}{', read only' if mount.read_only else ''}")
            for mount in container.mounts
        ],
        *[("environment", f"{key}={value}") for key, value in container.environment.items()],
        ("limits", ", ".join([f"shm {container.shm_bytes} bytes", *limits])),
        ("user", container.user or "the image's"),
        ("restart", container.restart),
    ]


def _drift(plan: Plan) -> list[Drift]:
    change = plan.change
    if change.previous is None or change.start is None:
        return []
    return drift(change.previous.labels, change.start.spec)
