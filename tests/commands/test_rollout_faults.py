"""A rollout that is broken off at any step: what is left is told, and one more command mends it.

Every step of every playbook, with the faults that this machine can have; tests/rig has those of
real hosts. DDTREE_ALL_FAULTS=1 runs every cell, else those of `replace`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ddtree_ops_cli.rollout.playbook import load, names
from tests.conftest import COMMAND_TIMEOUT_S, Ddtree

# What makes each playbook the one that a command follows, and that command.
BEFORE: dict[str, list[tuple[str, ...]]] = {
    "deploy": [],
    "replace": [("deploy", "--budget", "8")],
    "rollback": [("deploy", "--budget", "8"), ("deploy", "--budget", "12")],
    "stop": [("deploy", "--budget", "8")],
}
COMMAND: dict[str, tuple[str, ...]] = {
    "deploy": ("deploy", "--budget", "12"),
    "replace": ("deploy", "--budget", "12"),
    "rollback": ("rollback",),
    "stop": ("stop",),
}
PLAYBOOKS = names() if os.environ.get("DDTREE_ALL_FAULTS") else ["replace"]
CELLS = [
    (playbook, step.operation, when)
    for playbook in PLAYBOOKS
    for step in load(playbook).steps
    for when in ("before", "after")
]


def tell(ddtree: Ddtree, *words: str) -> Any:
    done = ddtree(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def on(host: str, words: tuple[str, ...]) -> list[str]:
    return [words[0], host, *words[1:], "--gpu", "0"]


def held_at(
    ddtree: Ddtree, step: str, when: str, words: list[str]
) -> tuple[subprocess.Popen[str], Path]:
    """A command that has come to this point, and the file that holds it there."""
    file = ddtree.home / "held"
    repository = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.rollout.held_at", step, when, str(file), "--", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=repository,
        env={**os.environ, **ddtree.environment},
    )
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    while not file.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process, file


def mended(ddtree: Ddtree) -> None:
    """One further deploy ends in a healthy service, and nobody is left with the lock."""
    again = ddtree(*on("tiny", COMMAND["deploy"]))
    assert again.returncode == 0, again.stderr
    [service] = tell(ddtree, "status", "tiny")["tiny"]["services"]
    assert (service["health"], service["budget"]) == ("healthy", 12)
    assert [lock["held"] for lock in tell(ddtree, "lock", "show", "tiny")] == [False]
    assert tell(ddtree, "history", "tiny")[-1]["result"] == "done"


@pytest.mark.parametrize(("playbook", "step", "when"), CELLS)
def test_a_killed_command_is_told_as_cut_off_and_the_next_one_mends_it(
    tiny: Ddtree, playbook: str, step: str, when: str
) -> None:
    for words in BEFORE[playbook]:
        tell(tiny, *on("tiny", words))
    process, _ = held_at(tiny, step, when, on("tiny", COMMAND[playbook]))
    process.kill()
    process.communicate()
    last = tell(tiny, "history", "tiny")[-1]
    assert (last["playbook"], last["result"]) == (playbook, None)
    assert last["last"] == f"{step} begin"
    running = [
        s for s in tell(tiny, "status", "tiny")["tiny"]["services"] if s["state"] == "running"
    ]
    assert len(running) <= 1
    mended(tiny)


@pytest.mark.parametrize(("playbook", "step", "when"), CELLS)
def test_ctrl_c_brings_back_what_was_there(
    tiny: Ddtree, playbook: str, step: str, when: str
) -> None:
    for words in BEFORE[playbook]:
        tell(tiny, *on("tiny", words))
    before = [s["budget"] for s in tell(tiny, "status", "tiny")["tiny"]["services"]]
    process, _ = held_at(tiny, step, when, on("tiny", COMMAND[playbook]))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
    assert process.returncode == 130, err
    services = tell(tiny, "status", "tiny")["tiny"]["services"]
    assert [(s["budget"], s["health"]) for s in services] == [(b, "healthy") for b in before]
    assert tell(tiny, "history", "tiny")[-1]["result"] == "interrupted"
    mended(tiny)


@pytest.mark.parametrize(("playbook", "step"), sorted({cell[:2] for cell in CELLS}))
def test_a_second_operator_is_refused_with_the_firsts_name_and_the_first_goes_on(
    tiny: Ddtree, playbook: str, step: str
) -> None:
    for words in BEFORE[playbook]:
        tell(tiny, *on("tiny", words))
    process, file = held_at(tiny, step, "before", on("tiny", COMMAND[playbook]))
    refused = tiny(*on("tiny", COMMAND["deploy"]))
    file.unlink()
    _, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
    assert refused.returncode == 5, refused.stderr
    assert f"{COMMAND[playbook][0]} tiny, since" in refused.stderr
    assert process.returncode == 0, err
    mended(tiny)
