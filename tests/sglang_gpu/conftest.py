"""`make test-gpu` sets DDTREE_SGLANG_GPU to a patched SGLang; without it nothing here runs.

A server starts when the first test asks for it, and all that started here end with the session.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sglang_gpu.answers import Server, ready
from tests.sglang_gpu.fleet import ENGINE, SESSION, start_once, stop

FOLDER = "DDTREE_FLEET"
collect_ignore_glob = [] if ENGINE in os.environ else ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "xdist_group: tests of one server run one after the other")
    if ENGINE not in os.environ or hasattr(config, "workerinput"):
        return
    folder = Path(os.environ.setdefault(FOLDER, tempfile.mkdtemp(prefix="ddtree-fleet-")))
    folder.mkdir(parents=True, exist_ok=True)
    # Inherited by pytest's workers.
    os.environ[SESSION] = str(os.getpid())


def pytest_unconfigure(config: pytest.Config) -> None:
    if ENGINE in os.environ and not hasattr(config, "workerinput"):
        stop(Path(os.environ[FOLDER]))


@pytest.fixture(scope="session")
def folder() -> Path:
    return Path(os.environ[FOLDER])


@pytest.fixture(scope="session")
def server(folder: Path) -> Callable[[str], Server]:
    """The server of a name, when it is ready. Skips one that this machine has no GPUs for."""
    known: dict[str, Server] = {}

    def wait(name: str) -> Server:
        if name not in known:
            if not start_once(name, Path(os.environ[ENGINE]).resolve(), folder):
                pytest.skip(f"this machine has too few GPUs for {name}")
            known[name] = ready(folder, name)
        return known[name]

    return wait


@pytest.fixture
def note(folder: Path, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Keeps figures for the report: one JSON line each in FOLDER/notes.jsonl."""

    def write(**figures: object) -> None:
        with (folder / "notes.jsonl").open("a", encoding="utf-8") as out:
            out.write(json.dumps({"test": request.node.name, **figures}) + "\n")

    return write
