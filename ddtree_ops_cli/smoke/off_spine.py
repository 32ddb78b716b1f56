"""Branches of the tree were truly taken; a tree that never branches is a dearer chain."""

from __future__ import annotations

from .outcome import Outcome
from .session import Session

CHECK = "off-spine acceptance"


def check(session: Session) -> Outcome:
    if session.algorithm != "DDTREE":
        runs = session.algorithm or "plain decoding"
        return Outcome(CHECK, "not exercised", f"the service runs {runs}: there is no tree")
    found = session.acceptance()
    if found is None or found.off_spine is None:
        return Outcome(
            CHECK,
            "not exercised",
            "no answer carries spec_num_off_spine_drafts: the engine's patch set is older than this"
            " tool; rebuild its image",
        )
    figures = {"off_spine": found.off_spine, "verify_steps": found.verify_steps}
    if not found.off_spine:
        return Outcome(
            CHECK,
            "not exercised",
            f"{found.verify_steps} verify steps accepted only the spine, so the commit of a branch"
            " is unproven: a larger budget or a smaller chain seed gives the tree more branches",
            figures,
        )
    return Outcome(
        CHECK,
        "passed",
        f"{found.off_spine} accepted drafts off the spine in {found.verify_steps} verify steps",
        figures,
    )
