"""The doctor on a host: the script travels over the connection and runs in the host's Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import DdtreeError
from ..hosts.probe import printable
from ..hosts.shell import OutOfTime, Shell, ThisMachine
from .export import script
from .portable.catalogue import CHECKS
from .portable.checks import Finding, blocked, judge

_TIMEOUT_S = 600.0
_NOT_FOUND = 127


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One place and what is wrong with it."""

    place: str
    facts: Mapping[str, Any]
    findings: tuple[Finding, ...]

    @property
    def blocked(self) -> bool:
        return blocked(self.findings)

    @property
    def failed_blocking(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if blocked([finding]))


def diagnosed(place: str, facts: Mapping[str, Any]) -> Diagnosis:
    """Pure: the checks of this version of ddtree on facts that were gathered anywhere."""
    return Diagnosis(place, facts, tuple(judge(CHECKS, facts)))


def visit(shell: Shell, intent: Mapping[str, Any], *, version: str) -> Diagnosis:
    """Gather facts on a host and judge them here.

    Raises HostUnreachable, and DdtreeError where the host has no Python to gather them with.
    """
    try:
        done = shell.run(
            ["python3", "-", "--json"], stdin=script(intent, version=version), timeout_s=_TIMEOUT_S
        )
    except OutOfTime as late:
        raise DdtreeError(
            f"the doctor did not end within {_TIMEOUT_S:g} s",
            where=late.where,
            mend="something that it asks hangs: see `nvidia-smi` and the kernel log there",
        ) from late
    except FileNotFoundError:
        raise _without_python(shell.name) from None
    if done.exit_code == _NOT_FOUND:
        raise _without_python(shell.name)
    place = shell.name if isinstance(shell, ThisMachine) else f"host {shell.name}"
    return diagnosed(place, parsed(done.out, done.err, where=place))


def parsed(out: str, err: str, *, where: str) -> Mapping[str, Any]:
    """The facts in what the script printed. DdtreeError if it printed something else."""
    try:
        facts: Mapping[str, Any] = json.loads(out)["facts"]
    except (ValueError, KeyError, TypeError):
        lines = [line.strip() for line in printable(err or out).splitlines() if line.strip()]
        raise DdtreeError(
            f"the doctor did not run there: {lines[-1][:300] if lines else 'it said nothing'}",
            where=where,
            mend="it needs Python 3.8 or newer with its whole standard library (Debian: python3, "
            "not python3-minimal)",
        ) from None
    return facts


def _without_python(name: str) -> DdtreeError:
    return DdtreeError(
        "there is no python3 for the doctor",
        where=f"host {name}",
        mend="install one, or run the file that `ddtree doctor --export FILE` writes inside a "
        "container there",
    )
