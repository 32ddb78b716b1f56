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
    ("words", "port"),
    [
        (["python3", "-m", "sglang.launch_server", "--port", "30001", "--host", "x"], 30001),
        (["python3", "-m", "sglang.launch_server", "--port=30002"], 30002),
        (["python3", "-m", "sglang.launch_server"], 30000),
    ],
)
def test_the_health_check_asks_the_port_of_the_command_line(
    health: ModuleType, words: list[str], port: int
) -> None:
    assert health.port(words) == port


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
