"""What tests that break rollouts off share, whatever the host: playbooks, their steps, the mend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conftest import COMMAND_TIMEOUT_S, Ddtree
from tests.rollout import matrix

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


def cells(*sample: str, without: frozenset[str]) -> list[tuple[str, str]]:
    """Every step of every playbook; or, unless all are wanted, these of a replacement."""
    if not matrix.WHOLE:
        return [("replace", step) for step in sample]
    steps = dict.fromkeys((cell.playbook, cell.step) for cell in matrix.cells())
    return [(playbook, step) for playbook, step in steps if step not in without]


def tell(ddtree: Ddtree, *words: str) -> Any:
    done = ddtree(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def on(host: str, words: tuple[str, ...], gpu: int = 0) -> list[str]:
    return [words[0], host, *words[1:], "--gpu", str(gpu)]


def services(ddtree: Ddtree, host: str) -> list[tuple[int, str]]:
    """Budget and health of each."""
    found = tell(ddtree, "status", host)[host]["services"]
    return [(service["budget"], service["health"]) for service in found]


@contextmanager
def held(
    ddtree: Ddtree, step: str, when: str, words: list[str], *, come_back_s: float = 30
) -> Iterator[subprocess.Popen[str]]:
    """A command that has come to this point; it goes on at the end of the context."""
    file = ddtree.home / "held"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.rollout.held_at", step, when, str(file), str(come_back_s),
         "--", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **ddtree.environment},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while not file.exists():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield process
    except BaseException:
        process.kill()
        raise
    finally:
        file.unlink(missing_ok=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and what was said."""
    _, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
    return process.returncode, err


def mended(ddtree: Ddtree, host: str, gpu: int = 0) -> None:
    """One further deploy ends in a healthy service, and nobody is left with the lock."""
    again = ddtree(*on(host, COMMAND["deploy"], gpu))
    assert again.returncode == 0, again.stderr
    assert services(ddtree, host) == [(12, "healthy")]
    assert not any(lock["held"] for lock in tell(ddtree, "lock", "show", host))
    assert tell(ddtree, "history", host)[-1]["result"] == "done"
    assert tell(ddtree, "status", host)[host]["unfinished"] == []
