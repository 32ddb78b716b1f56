"""What runs in the image: its entry point and its health check."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

DOCKER = Path(__file__).parents[2] / "docker"


@pytest.fixture
def health() -> ModuleType:
    spec = importlib.util.spec_from_file_location("health", DOCKER / "health.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("--port 30001 --host 0.0.0.0", "127.0.0.1:30001"),
        ("--port=30002", "127.0.0.1:30002"),
        ("", "127.0.0.1:30000"),
        ("--host 10.0.0.5 --port 1", "10.0.0.5:1"),
        ("--host :: --port 2", "[::1]:2"),
        ("--port", "127.0.0.1:30000"),
    ],
)
def test_the_health_check_asks_where_the_command_line_says_that_the_engine_is(
    health: ModuleType, words: str, place: str
) -> None:
    argv = ["python3", "-m", "sglang.launch_server", *words.split()]
    assert health.url(argv) == f"http://{place}/health"


def entered(folder: Path, doctor: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The entry point with a python3 that answers as the doctor would."""
    fake = folder / "python3"
    fake.write_text(f"#!/bin/sh\n{doctor}\n")
    fake.chmod(0o755)
    return subprocess.run(
        ["sh", str(DOCKER / "entrypoint.sh"), "echo", "two words", "$HOME"],
        capture_output=True,
        text=True,
        env={"PATH": f"{folder}:{os.environ['PATH']}", **environment},
    )


def test_a_place_that_fits_becomes_the_command(tmp_path: Path) -> None:
    done = entered(tmp_path, "echo sglang 0.5.17")
    assert (done.returncode, done.stdout) == (0, "two words $HOME\n")
    assert done.stderr == "sglang 0.5.17\n"


def test_a_place_that_does_not_ends_with_the_doctors_code_and_says_how_to_go_on(
    tmp_path: Path,
) -> None:
    done = entered(tmp_path, "echo driver too old; exit 8")
    assert (done.returncode, done.stdout) == (8, "")
    assert "driver too old" in done.stderr
    assert "not started (exit code 8); DDTREE_DOCTOR=off starts it anyway" in done.stderr


def test_the_look_can_be_left_out(tmp_path: Path) -> None:
    done = entered(tmp_path, "exit 8", DDTREE_DOCTOR="off")
    assert (done.returncode, done.stdout) == (0, "two words $HOME\n")
