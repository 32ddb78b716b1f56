"""Where a service that runs is not what its profiles say now. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .labels import Labels
from .spec import ServiceSpec


@dataclass(frozen=True, slots=True)
class Drift:
    key: str
    """Of the decided service, dotted: `tree.budget`, `engine.attention-backend`."""
    runs: Any
    declared: Any

    def __str__(self) -> str:
        return f"{self.key} {_word(self.runs)}, declared {_word(self.declared)}"


def drift(labels: Labels, declared: ServiceSpec) -> list[Drift]:
    """By key; empty if a deploy would change nothing, or if the service is too old to tell."""
    if labels.spec_hash == declared.spec_hash or labels.spec is None:
        return []
    runs = dict(_flat(json.loads(labels.spec)))
    wants = dict(_flat(json.loads(json.dumps(asdict(declared)))))
    return [
        Drift(key, runs.get(key), wants.get(key))
        for key in sorted(runs.keys() | wants.keys())
        if runs.get(key) != wants.get(key)
    ]


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        elif key == "engine":  # pairs of an option and its value
            yield from ((f"{above}{key}.{option}", given) for option, given in value)
        else:
            yield f"{above}{key}", value


def _word(value: Any) -> str:
    return "unset" if value is None or value == [] else str(value)
