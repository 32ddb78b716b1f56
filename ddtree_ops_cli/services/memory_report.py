"""A plan of memory as it is shown: what takes how much, what it comes to; or JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..output import tables
from ..output.console import data
from .engine_options import EngineOptions
from .memory_plan import Column
from .preflight import Models
from .shapes import GIB, MIB
from .spec import ServiceSpec

_RESERVE = "graphs and activations"


def show(columns: Sequence[Column]) -> None:
    titles = [column.title for column in columns]
    # The lab's pair is a thousand times smaller than what GPUs are for.
    unit, called = (GIB, "GiB") if any(column.gpus for column in columns) else (MIB, "MiB")
    rows: list[list[object]] = []
    for name in _names([column.items for column in columns]):
        rows.append([name, *(_size(dict(column.items).get(name), unit) for column in columns)])
        if name == _RESERVE:
            within = [column.within_reserve for column in columns]
            rows += [
                [f"  of it {inner}", *(_size(dict(sizes).get(inner), unit) for sizes in within)]
                for inner in _names(within)
            ]
    rows.append(["all", *(_size(column.capacity, unit) for column in columns)])
    tables.show((called, *titles), rows, right=titles)
    figures = [dict(column.figures) for column in columns]
    told: list[list[object]] = [
        [name, *(found.get(name) for found in figures)]
        for name in _names([column.figures for column in columns])
    ]
    data().print()
    told.append(["fits", *("no" if column.refusal else "yes" for column in columns)])
    tables.show(("it comes to", *titles), told, right=titles)


def document(
    spec: ServiceSpec, models: Models, options: EngineOptions, columns: Sequence[Column]
) -> dict[str, Any]:
    """Sizes in bytes; `null` for a figure that does not exist."""
    return {
        "host": spec.host,
        "service": spec.service,
        "model": spec.model,
        "options": asdict(options),
        "weights": {
            role: weights and {"directory": weights.directory, "commit": weights.commit}
            for role, weights in (("target", models.target), ("drafter", models.drafter))
        },
        "devices": [
            {
                "title": column.title,
                "gpus": list(column.gpus),
                "capacity": column.capacity,
                "items": _keyed(column.items),
                "within_graphs_and_activations": _keyed(column.within_reserve),
                "figures": _keyed(column.figures),
                "fits": column.refusal is None,
                "refusal": column.refusal,
                "mend": column.mend,
                "warnings": list(column.warnings),
            }
            for column in columns
        ],
    }


def _keyed(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {re.sub(r"\W+", "_", name.lower()): value for name, value in pairs}


def _names(columns: Sequence[Sequence[tuple[str, Any]]]) -> list[str]:
    return list(dict.fromkeys(name for column in columns for name, _ in column))


def _size(size: int | None, unit: int) -> str | None:
    return None if size is None else f"{size / unit:.2f}"
