"""Playbooks: the order of steps, in YAML for people to read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..bundled import bundled
from ..errors import ProfileError, UsageError


@dataclass(frozen=True, slots=True)
class Step:
    operation: str
    why: str | None


@dataclass(frozen=True, slots=True)
class Playbook:
    name: str
    description: str
    steps: tuple[Step, ...]


def names() -> list[str]:
    return sorted(file.stem for file in bundled("playbooks").glob("*.yaml"))


def load(name: str) -> Playbook:
    """The bundled playbook of this name.

    Raises UsageError for a name that there is not, ProfileError (file and reason) if it is
    malformed.
    """
    if name not in names():
        raise UsageError(f"no playbook {name}", mend=f"there is: {', '.join(names())}")
    return read(bundled("playbooks") / f"{name}.yaml")


def read(path: Path) -> Playbook:
    try:
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ProfileError(" ".join(str(error).split()), where=str(path)) from error
    try:
        steps = tuple(Step(step["operation"], step.get("why")) for step in document["steps"])
        return Playbook(path.stem, document["description"], steps)
    except (KeyError, TypeError, AttributeError) as error:
        raise ProfileError(
            f"not a playbook ({error})",
            where=str(path),
            mend="it has a description, and steps with an operation each",
        ) from error
