"""`make test-gpu` sets DDTREE_SGLANG_GPU to a patched SGLang; without it nothing here runs.

The servers start with the session, all at once; each test waits for those that it asks.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sglang_gpu.answers import Server, ready
from tests.sglang_gpu.fleet import FLEET, Started, start_all, stop

ENGINE = os.environ.get("DDTREE_SGLANG_GPU")
FOLDER = "DDTREE_FLEET"
collect_ignore_glob = [] if ENGINE else ["test_*.py"]

_started: list[Started] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "xdist_group: tests of one server run one after the other")
    if ENGINE is None or hasattr(config, "workerinput") or config.option.collectonly:
        return
    folder = Path(os.environ.setdefault(FOLDER, tempfile.mkdtemp(prefix="ddtree-fleet-")))
    folder.mkdir(parents=True, exist_ok=True)
    asked = os.environ.get("DDTREE_SERVERS")
    names = list(FLEET) if asked is None else asked.split()
    _started.extend(start_all(names, Path(ENGINE).resolve(), folder))


def pytest_unconfigure(config: pytest.Config) -> None:
    stop(_started)
    _started.clear()


@pytest.fixture(scope="session")
def folder() -> Path:
    return Path(os.environ[FOLDER])


@pytest.fixture(scope="session")
def server(folder: Path) -> Callable[[str], Server]:
    """The server of a name, when it is ready. Skips one that this machine has no GPUs for."""
    known: dict[str, Server] = {}

    def wait(name: str) -> Server:
        if name not in known:
            if not (folder / f"{name}.json").exists():
                pytest.skip(f"{name} was not started here")
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
