"""What a deploy or a stop would do. Pure: playbook, facts and spec in, steps out."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ProfileError
from ..services.labels import Labels
from .facts import Facts
from .operations import OPERATIONS, Change
from .playbook import Playbook


@dataclass(frozen=True, slots=True)
class PlannedStep:
    operation: str
    does: str
    changes: bool
    """Whether the step changes the host, or only looks."""
    why: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    playbook: str
    title: str
    change: Change
    steps: tuple[PlannedStep, ...]


def playbook_for(labels: Labels, facts: Facts) -> str | None:
    """The playbook that makes `labels` true; None when they are true and healthy already."""
    if facts.occupant is None:
        return "deploy"
    unchanged = facts.occupant.labels.declares(labels) and facts.occupant.proven
    return None if unchanged and facts.occupant_healthy else "replace"


def plan(playbook: Playbook, change: Change) -> Plan:
    """Resolve each step of the playbook to what it will do."""
    unknown = [step.operation for step in playbook.steps if step.operation not in OPERATIONS]
    if unknown:
        raise ProfileError(
            f"no operation {unknown[0]}",
            where=f"playbook {playbook.name}",
            mend=f"there are: {', '.join(OPERATIONS)}",
        )
    return Plan(
        playbook=playbook.name,
        title=playbook.description,
        change=change,
        steps=tuple(
            PlannedStep(
                operation=step.operation,
                does=OPERATIONS[step.operation].describe(change),
                changes=OPERATIONS[step.operation].changes,
                why=step.why,
            )
            for step in playbook.steps
            if OPERATIONS[step.operation].needed(change)
        ),
    )
