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
    """A table of all findings, what failed first; then what each failure means."""
    findings = diagnosis.findings
    rows: list[tuple[str, str, str, str]] = []
    for state in (FAILED, PASSED):
        for finding in findings:
            if finding.state == state:
                check = finding.check
                said = finding.found or (check.title,)
                rows += [(state, check.severity, check.id, line) for line in said]
    reasons: dict[str, list[str]] = {}
    for finding in findings:
        if finding.state == NOT_CHECKED:
            reasons.setdefault(finding.found[0], []).append(finding.check.id)
    rows += [(NOT_CHECKED, "-", ", ".join(ids), why) for why, ids in reasons.items()]
    tables.show(("state", "severity", "check", "found"), rows)
    for finding in findings:
        if finding.state == FAILED:
            check = finding.check
            note(f"{check.id}: {check.means} Mend: {check.mend}")
    failed = sum(f.state == FAILED for f in findings)
    skipped = sum(f.state == NOT_CHECKED for f in findings)
    passed = len(findings) - failed - skipped
    note(f"{diagnosis.place}: {passed} passed, {failed} failed, {skipped} not checked")


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
