"""`smoke --dry-run`: what would be checked and started, and that nothing is."""

from __future__ import annotations

import json

from tests.conftest import Ddtree


def running(ddtree: Ddtree) -> list[str]:
    found = json.loads(ddtree("status", "tiny", "--json").stdout)["tiny"]["services"]
    return [one["service"] for one in found]


def test_a_dry_run_says_what_is_checked_and_started_and_starts_nothing(tiny: Ddtree) -> None:
    assert tiny("deploy", "tiny", "--service", "ddtree").returncode == 0

    alone = tiny("smoke", "tiny", "-n")
    assert alone.returncode == 0, alone.stderr
    assert "checks of ddtree on GPU 0: readiness" in alone.stdout
    assert "parity with: nothing, it would not be exercised" in alone.stdout

    done = tiny("smoke", "tiny", "-n", "--start-linear")
    assert done.returncode == 0, done.stderr
    assert "parity with: dflash-linear, to be started on GPU 1 and stopped after" in done.stdout
    assert "start dflash-linear on GPU 1" in done.stdout
    assert "--speculative-algorithm DFLASH" in done.stdout
    assert "check that the engine can take tiny-pair" in done.stderr

    document = json.loads(tiny("smoke", "tiny", "-n", "--start-linear", "--json").stdout)
    assert document["start"]["playbook"] == "deploy"
    assert "parity with linear" in document["checks"]
    assert running(tiny) == ["ddtree"]

    assert tiny("deploy", "tiny", "--service", "dflash-linear").returncode == 0
    beside = tiny("smoke", "tiny", "-n", "--service", "ddtree")
    assert "parity with: dflash-linear on GPU 1, http://127.0.0.1:" in beside.stdout
