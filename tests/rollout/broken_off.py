"""What tests that break rollouts off share, whatever the host."""

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
