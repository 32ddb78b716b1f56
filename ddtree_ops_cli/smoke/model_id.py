"""The server serves the model that was asked for, and not what held the port before."""

from __future__ import annotations

from .outcome import Outcome
from .session import Session

CHECK = "model id"


def check(session: Session) -> Outcome:
    served = [model.id for model in session.engine.models()]
    if session.served_name not in served:
        return Outcome(
            CHECK,
            "failed",
            f"/v1/models lists {', '.join(served) or 'nothing'}, not {session.served_name}:"
            " another server has this port",
        )
    return Outcome(CHECK, "passed", f"/v1/models lists {session.served_name}")
