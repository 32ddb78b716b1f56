"""Findings for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..output import tables
from ..output.console import note
from .portable.catalogue import CHECKS
from .portable.checks import FAILED, NOT_CHECKED, PASSED, Check, plain
from .visit import Diagnosis


def show(diagnosis: Diagnosis) -> None:
    """A table of what was checked, what failed first; then what each failure means and its mend,
    and what could not be checked."""
    findings = diagnosis.findings
    rows: list[tuple[str, str, str, str]] = []
    for state in (FAILED, PASSED):
        for finding in findings:
            if finding.state == state:
                check = finding.check
                said = finding.found or (check.title,)
                rows += [(state, check.severity, check.id, line) for line in said]
    note(f"{diagnosis.place}:")
    tables.show(("state", "severity", "check", "found"), rows)
    for finding in findings:
        if finding.state == FAILED:
            check = finding.check
            note(f"{check.id}: {check.means} Mend: {check.mend}")
    reasons: dict[str, list[str]] = {}
    for finding in findings:
        if finding.state == NOT_CHECKED:
            reasons.setdefault(finding.found[0], []).append(finding.check.id)
    for why, ids in reasons.items():
        note(f"not checked ({why}): {', '.join(ids)}")
    failed = [finding for finding in findings if finding.state == FAILED]
    blocking = len(diagnosis.failed_blocking)
    skipped = sum(map(len, reasons.values()))
    note(
        f"{diagnosis.place}: {len(findings) - len(failed) - skipped} passed, {len(failed)} failed "
        f"({blocking} of them blocking), {skipped} not checked"
    )


def document(places: Sequence[Diagnosis]) -> dict[str, Any]:
    return {
        "blocked": any(place.blocked for place in places),
        "places": [
            {
                "place": place.place,
                "blocked": place.blocked,
                "findings": [plain(finding) for finding in place.findings],
                "facts": place.facts,
            }
            for place in places
        ],
    }


def show_checks(checks: Iterable[Check] = CHECKS) -> None:
    rows = [(check.severity, check.id, check.title, check.reference) for check in checks]
    tables.show(("severity", "check", "what is so on a healthy host", "prevents"), rows)


def checks_document(checks: Iterable[Check] = CHECKS) -> list[dict[str, str]]:
    return [
        {
            "id": check.id,
            "severity": check.severity,
            "title": check.title,
            "means": check.means,
            "mend": check.mend,
            "prevents": check.prevents,
            "reference": check.reference,
        }
        for check in checks
    ]
