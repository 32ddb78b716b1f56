"""What a running service says of itself, on the host and nowhere else.

A container carries these as labels with the prefix `dev.ddtree.`; the process runtime keeps the
same mapping in its record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Self

from .spec import ServiceSpec

if TYPE_CHECKING:
    from .container import Container

PREFIX = "dev.ddtree."
_DECLARED = ("spec_hash", "gpu_uuid", "image_digest")
_OPTIONAL = (
    "spec",
    "deployed_at",
    "profile_hash",
    "gpu_uuid",
    "image",
    "image_digest",
    "patch_set",
    "restart",
)


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
    deployed_at: str | None = None
    """UTC by the host's clock, such as 2026-05-01T12:00:00Z."""
    profile_hash: str | None = None
    """Hash of what the three profiles say; flags of the command line are not in it."""
    gpu_uuid: str | None = None
    image: str | None = None
    """What the profile calls it."""
    image_digest: str | None = None
    patch_set: str | None = None
    """Hash of the patch set in the image."""
    restart: str | None = None
    """Docker's policy for a service that is proven."""

    def declares(self, other: Labels) -> bool:
        """Whether to replace this service by the other would change nothing."""
        return all(getattr(self, name) == getattr(other, name) for name in _DECLARED)

    def to_mapping(self) -> dict[str, str]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {PREFIX + name: str(value) for name, value in values.items() if value is not None}

    @classmethod
    def of(
        cls,
        spec: ServiceSpec,
        *,
        engine: str,
        deployer: str,
        deployed_at: str | None = None,
        profile_hash: str | None = None,
        container: Container | None = None,
    ) -> Self:
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
            deployed_at=deployed_at,
            profile_hash=profile_hash,
            gpu_uuid=container.gpu_uuid if container else None,
            image=container.image if container else None,
            image_digest=container.image_digest if container else None,
            patch_set=container.patch_set if container else None,
            restart=container.restart if container else None,
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
            **{name: own.get(name) for name in _OPTIONAL},
        )
