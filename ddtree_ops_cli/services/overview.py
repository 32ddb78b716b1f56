"""Services as they are shown: one table at a glance, or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import DdtreeError, HostUnreachable
from ..output import tables
from ..output.console import note
from ..output.times import duration
from .observation import Observed
from .runtimes import Instance

Found = Mapping[str, list[Observed] | DdtreeError]

_COLUMNS = ("host", "GPU", "service", "engine", "budget", "port", "health", "uptime", "accept")


def show(found: Found) -> None:
    tables.show(_COLUMNS, _rows(found), numeric="GPU budget port uptime accept")
    for name, result in found.items():
        for seen in () if isinstance(result, DdtreeError) else result:
            for difference in seen.drift:
                note(f"{name}, {seen.instance.title}: {difference}")


def document(found: Found) -> dict[str, Any]:
    """`{host: {"services": [...]} or {"error": text}}`; times in seconds."""
    return {name: _host(result) for name, result in found.items()}


def _host(result: list[Observed] | DdtreeError) -> dict[str, Any]:
    if isinstance(result, DdtreeError):
        return {"error": str(result)}
    services = [
        {
            **summary(seen.instance),
            "health": seen.health,
            "detail": seen.detail,
            "uptime_s": None if seen.uptime_s is None else round(seen.uptime_s, 1),
            "accept_length": seen.accept_length,
            "drift": list(seen.drift),
        }
        for seen in result
    ]
    return {"services": services}


def summary(instance: Instance) -> dict[str, Any]:
    """An instance as JSON."""
    labels = instance.labels
    return {
        "host": labels.host,
        "gpu": labels.gpu,
        "service": labels.service,
        "model": labels.model,
        "served_name": labels.served_name,
        "engine": labels.engine,
        "algorithm": labels.algorithm,
        "budget": labels.budget,
        "mode": labels.mode,
        "port": labels.port,
        "url": instance.url,
        "tunnel": instance.tunnel,
        "state": instance.state,
        "identity": instance.identity,
        "started_at": instance.started_at,
        "spec_hash": labels.spec_hash,
        "deployer": labels.deployer,
        "deployed_at": labels.deployed_at,
        "profile_hash": labels.profile_hash,
        "gpu_uuid": labels.gpu_uuid,
        "image": labels.image,
        "image_digest": labels.image_digest,
        "patch_set": labels.patch_set,
    }


def _rows(found: Found) -> list[list[object]]:
    rows: list[list[object]] = []
    for name, result in found.items():
        if isinstance(result, DdtreeError):
            word = "unreachable" if isinstance(result, HostUnreachable) else "failed"
            rows.append([name, *[None] * 5, f"{word}: {result.what}", None, None])
        elif not result:
            rows.append([name, *[None] * 5, "stopped: nothing is deployed", None, None])
        else:
            rows += [[name, *_row(seen)] for seen in result]
    return rows


def _row(seen: Observed) -> list[object]:
    labels = seen.instance.labels
    return [
        labels.gpu,
        labels.service,
        labels.engine,
        labels.budget,
        labels.port,
        f"{seen.health}: {seen.detail}" if seen.detail else seen.health,
        None if seen.uptime_s is None else duration(seen.uptime_s),
        None if seen.accept_length is None else f"{seen.accept_length:.2f}",
    ]
