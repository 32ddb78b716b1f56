"""The server answers, and the engine behind it generates."""

from __future__ import annotations

from .outcome import Outcome
from .session import Session

CHECK = "readiness"


def check(session: Session) -> Outcome:
    for endpoint, probe in (
        ("/health", session.engine.health),
        ("/health_generate", session.engine.health_generate),
    ):
        found = probe()
        if not found.ready:
            seen = found.detail if found.status is None else f"HTTP {found.status}"
            meaning = (
                "the server is not up, or still loads its model"
                if endpoint == "/health"
                else "the server is up, but its engine generates nothing"
            )
            return Outcome(CHECK, "failed", f"{endpoint}: {seen}: {meaning}")
    return Outcome(CHECK, "passed", "/health and /health_generate answer 200")
