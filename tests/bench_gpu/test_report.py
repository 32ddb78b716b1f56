"""The tables, from a document as the program writes it, whole or broken off."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from tests.bench_gpu.test_contest import measured
from tests.bench_gpu.test_trace import trace
from tools.bench_gpu.contest import document
from tools.bench_gpu.report import markdown
from tools.bench_gpu.trace import device_work, profile_steps


def cells(text: str, first: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def contest(title: str, tree_s: float, *, forced: bool = True) -> dict[str, Any]:
    found = document(measured({"tree": tree_s, "linear": 0.024}))
    server = {"forced_accept_length": 6} if forced else {}
    return {"contests": {title: found}, "servers": {title: server}}


@pytest.mark.parametrize(
    ("title", "tree_s", "aim"),
    [
        ("27b-tree-16-gpu0", 0.0270, "<= 1.15: met"),
        ("27b-tree-16-gpu0", 0.0280, "<= 1.15: MISSED"),
        ("27b-tree-16-off-spine-gpu1", 0.0270, "<= 1.15: met"),
        ("27b-tree-32-gpu0", 0.0330, "<= 1.35: MISSED"),
        ("27b-tree-64-gpu0", 0.0330, "-"),
    ],
)
def test_a_step_is_held_against_its_aim(title: str, tree_s: float, aim: str) -> None:
    row = cells(markdown(contest(title, tree_s)), title)
    assert row[1:3] == ["24.00", f"{1000 * tree_s:.2f}"]
    assert row[3].startswith(f"{tree_s / 0.024:.3f} (")
    assert row[4] == aim


def test_real_acceptance_has_no_aim_for_its_steps() -> None:
    row = cells(
        markdown(contest("lab-pair-tree-16-gpu1", 0.05, forced=False)), "lab-pair-tree-16-gpu1"
    )
    assert row[4] == "-"
    assert row[8] == "6.00 / 6.00"


def test_profiles_stand_side_by_side() -> None:
    found = profile_steps(device_work(trace(20)), asked=20)
    linear = {**asdict(found), "idle_ms": found.idle_ms}
    tree = {
        **linear,
        "families": [{"name": "tree", "ms": 0.05, "alone_ms": 0.05, "calls": 1.0}],
        "gaps": [],
    }
    text = markdown({"profiles": {"linear": linear, "tree-16": tree}})
    assert cells(text, "device busy, ms") == ["device busy, ms", "0.70", "0.70"]
    assert cells(text, "matrix products") == ["matrix products", "0.60 / 0.55 (2)", "-"]
    assert "Idle gaps, linear" in text
    assert "Idle gaps, tree-16" not in text


def test_failures_are_quoted_whole() -> None:
    text = markdown({"failures": {"start tree": "it ended with code 1; its log ends:\nOOM"}})
    assert "- start tree:\n\n```\nit ended with code 1; its log ends:\nOOM\n```" in text


def test_nothing_measured_yet_is_no_error() -> None:
    assert markdown({}) == "\n"
