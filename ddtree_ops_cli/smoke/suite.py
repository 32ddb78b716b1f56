"""`ddtree smoke`: the checks in their order."""

from __future__ import annotations

from collections.abc import Callable

from ..engine_api.client import EngineClient
from ..errors import DdtreeError
from . import (
    acceptance_floor,
    determinism,
    model_id,
    off_spine,
    parity,
    readiness,
    rederivation,
    repetition,
)
from .outcome import Outcome
from .session import PROMPTS, Session

__all__ = ["CHECKS", "Outcome", "run_quick", "run_suite"]

Check = Callable[[Session], Outcome]

CHECKS: tuple[tuple[str, Check], ...] = tuple(
    (module.CHECK, module.check)
    for module in (
        readiness,
        model_id,
        determinism,
        rederivation,
        parity,
        off_spine,
        repetition,
        acceptance_floor,
    )
)


_QUICK = (determinism, rederivation)
_QUICK_PROMPTS = PROMPTS[:2]
"""Code and an explanation: a second or two of a GPU each, and twice for determinism."""

_QUICK_TOKENS = 64
_QUICK_POSITIONS = 8


def run_quick(engine: EngineClient, *, served_name: str) -> list[Outcome]:
    """What tells a wrong state or kernel in a few answers, whatever the model; for every start."""
    session = Session(
        engine,
        served_name,
        None,
        prompts=_QUICK_PROMPTS,
        answer_tokens=_QUICK_TOKENS,
        positions=_QUICK_POSITIONS,
    )
    return [_run(module.CHECK, module.check, session, []) for module in _QUICK]


def run_suite(
    engine: EngineClient,
    *,
    served_name: str,
    linear: EngineClient | None,
    on_outcome: Callable[[Outcome], None],
) -> list[Outcome]:
    """Run every check on `engine`, reporting each as it ends.

    `linear` is the linear service of the same model, if there is one. An engine that is not ready
    or serves another model is asked nothing more. A check in which an engine breaks off has failed;
    the checks after it still run.
    """
    session = Session(engine, served_name, linear)
    outcomes: list[Outcome] = []
    for name, check in CHECKS:
        outcome = _run(name, check, session, outcomes)
        outcomes.append(outcome)
        on_outcome(outcome)
    return outcomes


def _run(name: str, check: Check, session: Session, before: list[Outcome]) -> Outcome:
    unusable = [
        outcome.check
        for outcome in before
        if outcome.verdict == "failed" and outcome.check in (readiness.CHECK, model_id.CHECK)
    ]
    if unusable:
        return Outcome(name, "not exercised", f"mend {unusable[0]} first")
    try:
        return check(session)
    except DdtreeError as error:
        return Outcome(name, "failed", str(error))
