"""What a running service says of itself, on the host and nowhere else.

A container carries these as labels with the prefix `dev.ddtree.`; the process runtime keeps the
same mapping in its record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Self

from .spec import ServiceSpec

PREFIX = "dev.ddtree."


@dataclass(frozen=True, slots=True)
class Labels:
    host: str
    service: str
    model: str
    served_name: str
    gpu: int
    bind: str
    port: int
    algorithm: str
    budget: int | None
    """Nodes besides the root; None without a tree."""
    mode: str | None
    engine: str
    """`lab` or `sglang`, with the version."""
    spec_hash: str
    """Hash of everything that was decided before the start: equal means nothing to change."""
    deployer: str
    """user@machine that deployed it."""
    spec: str | None = None
    """What was decided, as JSON: what drift is told from."""

    def to_mapping(self) -> dict[str, str]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {PREFIX + name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def of(cls, spec: ServiceSpec, *, engine: str, deployer: str) -> Self:
        return cls(
            host=spec.host,
            service=spec.service,
            model=spec.model,
            served_name=spec.served_name,
            gpu=spec.gpu,
            bind=spec.bind,
            port=spec.port,
            algorithm=spec.algorithm,
            budget=spec.tree.budget if spec.tree else None,
            mode=spec.tree.mode if spec.tree else None,
            engine=engine,
            spec_hash=spec.spec_hash,
            deployer=deployer,
            spec=json.dumps(asdict(spec), sort_keys=True),
        )

    @classmethod
    def from_mapping(cls, labels: Mapping[str, str]) -> Self:
        """Raises KeyError or ValueError if the labels are not of this toolkit's making."""
        own = {
            key.removeprefix(PREFIX): value
            for key, value in labels.items()
            if key.startswith(PREFIX)
        }
        budget = own.get("budget")
        return cls(
            host=own["host"],
            service=own["service"],
            model=own["model"],
            served_name=own["served_name"],
            gpu=int(own["gpu"]),
            bind=own["bind"],
            port=int(own["port"]),
            algorithm=own["algorithm"],
            budget=None if budget is None else int(budget),
            mode=own.get("mode"),
            engine=own["engine"],
            spec_hash=own["spec_hash"],
            deployer=own["deployer"],
            spec=own.get("spec"),
        )
