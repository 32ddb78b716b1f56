"""`make test-sglang` sets DDTREE_SGLANG to the assembled engine; without it nothing here runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ENGINE = os.environ.get("DDTREE_SGLANG")
collect_ignore_glob = [] if ENGINE else ["test_*.py"]

TALLY: list[str] = []
"""What the servers counted, printed at the end of the run."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in TALLY:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def engine() -> Path:
    """The assembled SGLang, already importable by this process too."""
    assert ENGINE is not None
    return Path(ENGINE).resolve()


@pytest.fixture(scope="session")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from tests.lab.random_pair import write_random_pair

    return write_random_pair(tmp_path_factory.mktemp("hybrid"))


@pytest.fixture(scope="session")
def dense(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from tests.sglang_cpu.dense_pair import write_dense_pair

    return write_dense_pair(tmp_path_factory.mktemp("dense"))
