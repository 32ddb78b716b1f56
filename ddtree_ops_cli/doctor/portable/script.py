"""The doctor as a program of its own, for a host where nothing may be installed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .catalogue import CHECKS
from .checks import FAILED, NOT_CHECKED, Finding, blocked, judge, plain
from .gather import gather

BLOCKED = 8
"""The exit code when a blocking check failed."""


def main(intent: Mapping[str, Any], arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="ddtree-doctor",
        description="Says whether this host or container can run SGLang with DDTree. Reads only; "
        f"exit code {BLOCKED} if a blocking check failed.",
    )
    parser.add_argument("--json", action="store_true", help="print facts and findings as JSON")
    parser.add_argument("--quick", action="store_true", help="a second, and only what fails")
    parser.add_argument("--list", action="store_true", help="list the checks and stop")
    parser.add_argument("--arch", type=int, help="GPU to check for, as 120; default: the one here")
    options = parser.parse_args(arguments)
    if options.list:
        for check in CHECKS:
            sys.stdout.write(f"{check.severity:9} {check.id:18} {check.title}\n")
        return 0
    facts = gather(
        {**intent, **({"arch": options.arch} if options.arch else {})}, quick=options.quick
    )
    findings = judge(CHECKS, facts)
    if options.json:
        document = {"facts": facts, "findings": [plain(finding) for finding in findings]}
        json.dump(document, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        if options.quick:
            sys.stdout.write(summary(facts) + "\n")
        for finding in findings:
            if finding.state == FAILED or not options.quick:
                sys.stdout.write(told(finding) + "\n")
    return BLOCKED if blocked(findings) else 0


def summary(facts: Mapping[str, Any]) -> str:
    """What fits together here, in one line."""
    versions = facts["packages"].get("versions", {})
    torch = facts["torch"]
    cards = facts["gpus"].get("cards", [])
    applied = facts["patch_set"].get("applied")
    return " | ".join(
        (
            f"sglang {versions.get('sglang', '-')}",
            f"patch set {applied[:12] if applied else '-'}",
            f"sglang-kernel {versions.get('sglang-kernel', '-')}",
            f"torch {torch.get('version', '-')} (CUDA {torch.get('cuda', '-')})",
            f"driver {facts['driver'].get('module') or '-'}",
            ", ".join(f"{card['name']} (sm_{card['compute_cap']})" for card in cards) or "no GPU",
        )
    )


def told(finding: Finding) -> str:
    """A finding for people: one line, and for a failure what it means and how to mend it."""
    check = finding.check
    head = f"{finding.state:11} {check.severity:9} {check.id}"
    if finding.state == NOT_CHECKED:
        return f"{head}: {finding.found[0]}"
    if finding.state != FAILED:
        return f"{head}: {check.title}"
    lines = [f"{head}: {found}" for found in finding.found]
    lines += [f"    means: {check.means}", f"    mend:  {check.mend}"]
    lines += [f"    known as: {check.prevents} ({check.reference})"]
    return "\n".join(lines)
