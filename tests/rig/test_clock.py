"""A host and an operator whose clocks are hours apart: the host's times are told by the host's.

A kernel has one clock for all its hosts. So it is the operator's that is off here, by a module
that Python loads before the command; to the command it is the same.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

import pytest

from tests.rig.conftest import Box, Operator

OFF = """
import time
_true = time.time
time.time = lambda: _true() + {ahead_s}
"""
HOURS_S = 3 * 3600 + 30


def set_clock(operator: Operator, ahead_s: int) -> None:
    """What the operator's commands take for the time from now on."""
    shim = operator.home / "clock"
    shim.mkdir(exist_ok=True)
    (shim / "sitecustomize.py").write_text(OFF.format(ahead_s=ahead_s))
    operator.ddtree.environment["PYTHONPATH"] = str(shim)


def done(operator: Operator, *words: str) -> tuple[str, str]:
    result = operator.ddtree(*words)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout, result.stderr


def ago(box: Box, at: str) -> float:
    """Seconds since a moment, by the host's clock."""
    now = float(box.host.run("date", "+%s"))
    return now - datetime.fromisoformat(at).timestamp()


def services(operator: Operator) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(done(operator, "status", "gpu1", "--json")[0])["gpu1"][
        "services"
    ]
    return found


@pytest.mark.parametrize("way", [1, -1], ids=["the host is behind", "the host is ahead"])
def test_the_times_of_a_host_are_all_its_own(gpu_host: Box, operator: Operator, way: int) -> None:
    operator.serves("gpu1", gpu_host)
    set_clock(operator, way * HOURS_S)
    named = f"the clock of gpu1 is 3 h {'behind' if way > 0 else 'ahead of'} this machine's"

    done(operator, "deploy", "gpu1", "--gpu", "1", "--service", "plain")
    shown, said = done(operator, "status", "gpu1")
    assert named in said
    assert re.search(r" healthy +\d+ s ", shown), shown
    [service] = services(operator)
    assert 0 <= ago(gpu_host, service["deployed_at"]) < 120
    assert 0 <= service["uptime_s"] < 120

    runs, said = done(operator, "history", "gpu1", "--json")
    assert named in said
    assert 0 <= ago(gpu_host, json.loads(runs)[-1]["at"]) < 120
    locks, said = done(operator, "lock", "show", "gpu1", "--json")
    assert named in said
    assert 0 <= ago(gpu_host, json.loads(locks)[-1]["since"]) < 120
    clock = json.loads(done(operator, "hosts", "facts", "gpu1", "--json")[0])["facts"]["clock"]
    assert clock["offset_s"] == pytest.approx(-way * HOURS_S, abs=1 + clock["uncertainty_s"])

    # Stopped some seconds ago, and not hours, whatever the operator's clock makes of it.
    done(operator, "stop", "gpu1")
    prune = ("prune", "gpu1", "--latest-too", "--json", "--older-than")
    spared = json.loads(done(operator, *prune, "1")[0])
    assert (spared["forgotten"], len(spared["spared"])) == ([], 1)
    forgotten = json.loads(done(operator, *prune, "0")[0])
    assert (len(forgotten["forgotten"]), forgotten["spared"]) == (1, [])
    assert gpu_host.host.run("docker", "ps", "-aq") == ""


def test_operators_with_different_clocks_see_one_order_of_events(
    gpu_host: Box, operator: Operator
) -> None:
    operator.serves("gpu1", gpu_host)
    deploy = ("deploy", "gpu1", "--gpu", "1", "--service", "plain")
    set_clock(operator, HOURS_S)
    done(operator, *deploy)
    first = services(operator)[0]["deployed_at"]
    set_clock(operator, -HOURS_S)
    done(operator, *deploy, "--port", "30055")
    assert services(operator)[0]["deployed_at"] > first
    runs = json.loads(done(operator, "history", "gpu1", "--json")[0])
    assert [run["playbook"] for run in runs] == ["deploy", "replace"]
    assert runs[0]["at"] <= runs[1]["at"]
