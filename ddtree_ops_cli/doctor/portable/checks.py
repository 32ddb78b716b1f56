"""What a check is, and how facts are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .gather import wanted_arch

BLOCKING, ADVISORY = "blocking", "advisory"
PASSED, FAILED, NOT_CHECKED = "passed", "failed", "not checked"


class NotChecked(Exception):
    """A fact that the check needs is not known here; the reason is its text."""


class Facts:
    """The facts of one place. What is not there raises NotChecked instead of KeyError."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    @property
    def intent(self) -> Mapping[str, Any]:
        """What is to run: `arch` (120), `gpu_uuid`, `algorithm`, `attention_backend`, `patch_set`
        (its hash), `lock` (versions by package), `container` (True where a container is meant),
        `folders` (whose disks matter), `no_gpu` (why none was given). Each may be absent."""
        found: Mapping[str, Any] = self._document["intent"]
        return found

    def section(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._document.get(name, {"unknown": f"{name} was not read"})
        if "unknown" in found:
            raise NotChecked(str(found["unknown"]))
        return found

    def get(self, section: str, key: str) -> Any:
        value = self.section(section).get(key)
        if value is None:
            raise NotChecked(f"{section} has no {key} here")
        return value

    def peek(self, section: str) -> Mapping[str, Any]:
        """A section even if it is not known."""
        found: Mapping[str, Any] = self._document.get(section) or {}
        return found

    def arch(self) -> int:
        found = wanted_arch(self._document)
        if found is None:
            raise NotChecked("no GPU says which architecture is needed")
        return found

    def engine_runs_here(self) -> None:
        """Raises NotChecked on a host that runs the engine in containers alone: its own limits and
        tools do not matter."""
        if not self.intent.get("container") and "unknown" in self.peek("torch"):
            raise NotChecked("the engine does not run here, but in containers")

    def wanted(self, key: str) -> Any:
        value = self.intent.get(key)
        if value is None:
            raise NotChecked(f"nothing says which {key.replace('_', ' ')} is meant")
        return value


class Check(NamedTuple):
    id: str
    severity: str
    title: str
    means: str
    mend: str
    prevents: str
    """The public failure that it prevents."""
    reference: str
    judge: Callable[[Facts], Iterable[str]]
    """What is wrong, each in one line; nothing if all is well. Raises NotChecked."""


class Finding(NamedTuple):
    check: Check
    state: str
    found: tuple[str, ...]
    """What was found, or why it was not checked."""


def judge(checks: Iterable[Check], document: Mapping[str, Any]) -> list[Finding]:
    """Pure: facts to findings, in the order of the checks."""
    facts = Facts(document)
    findings = []
    for check in checks:
        try:
            found = tuple(check.judge(facts))
        except NotChecked as reason:
            findings.append(Finding(check, NOT_CHECKED, (str(reason),)))
        else:
            findings.append(Finding(check, FAILED if found else PASSED, found))
    return findings


def plain(finding: Finding) -> dict[str, Any]:
    """A finding as JSON."""
    check = finding.check
    return {
        "id": check.id,
        "severity": check.severity,
        "state": finding.state,
        "title": check.title,
        "found": list(finding.found),
        "means": check.means,
        "mend": check.mend,
        "prevents": check.prevents,
        "reference": check.reference,
    }


def blocked(findings: Iterable[Finding]) -> bool:
    return any(f.state == FAILED and f.check.severity == BLOCKING for f in findings)
