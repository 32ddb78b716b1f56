"""What `ddtree smoke` would do, before it does it."""

from __future__ import annotations

from typing import Any

from ..output.console import data
from ..rollout import report
from ..rollout.companion import Companion
from ..services.runtimes import Instance
from .suite import CHECKS


def show(chosen: Instance, linear: Companion | None) -> None:
    out = data()
    out.print(f"checks of {chosen.title}: {', '.join(_checks())}", markup=False)
    out.print(f"parity with: {linear or 'nothing, it would not be exercised'}", markup=False)
    if linear is not None and linear.start is not None:
        out.print()
        report.show_plan(linear.start)


def document(chosen: Instance, linear: Companion | None) -> dict[str, Any]:
    start = None if linear is None else linear.start
    return {
        "service": chosen.labels.service,
        "checks": _checks(),
        "linear": None if linear is None else str(linear),
        "start": None if start is None else report.plan_document(start),
    }


def _checks() -> list[str]:
    return [name for name, _ in CHECKS]
