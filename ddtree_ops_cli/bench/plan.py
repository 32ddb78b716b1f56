"""What `ddtree bench` would do, before it does it."""

from __future__ import annotations

from typing import Any

from ..output import tables
from ..output.console import data
from ..rollout import report
from ..rollout.companion import Companion
from ..services.runtimes import Instance
from .record import schedule_document, way
from .run import Run
from .schedule import block_order, round_order


def show(run: Run, chosen: Instance, companion: Companion) -> None:
    """Who is measured, in which order, and what is started and stopped for it."""
    out = data()
    tables.show(("round", _columns(run)), enumerate(_orders(run), start=1))
    out.print(f"\n{run.arms[0]}: {chosen.title}, {chosen.url}", markup=False)
    out.print(f"{run.arms[1]}: {companion}", markup=False)
    if run.in_turns:
        starts = 2 * run.settings.rounds - 1
        out.print(
            f"\nEach block is a fresh start and a warm-up: {starts} starts on GPU {companion.gpu}. "
            f"{chosen.title} answers only in its own blocks, and runs again at the end, as it "
            f"does now. This brings {companion.service} into its place:",
            markup=False,
        )
    if companion.start is not None:
        out.print()
        report.show_plan(companion.start)


def document(run: Run, chosen: Instance, companion: Companion) -> dict[str, Any]:
    return {
        "arms": {run.arms[0]: f"{chosen.title}, {chosen.url}", run.arms[1]: str(companion)},
        "way": way(run),
        "schedule": schedule_document(run, run.settings.rounds),
        "start": None if companion.start is None else report.plan_document(companion.start),
    }


def _columns(run: Run) -> str:
    if run.in_turns:
        return "blocks, each all prompts on one arm"
    return "prompts, each on both arms in this order"


def _orders(run: Run) -> list[str]:
    ids, seed = [prompt.id for prompt in run.prompts], run.settings.seed
    if run.in_turns:
        return [
            "; ".join(
                f"{block.arm} ({', '.join(block.prompts)})"
                for block in block_order(index, ids, run.arms, seed=seed)
            )
            for index in range(run.settings.rounds)
        ]
    return [
        ", ".join(
            f"{pair.prompt} ({', '.join(pair.arms)})"
            for pair in round_order(index, ids, run.arms, seed=seed)
        )
        for index in range(run.settings.rounds)
    ]
