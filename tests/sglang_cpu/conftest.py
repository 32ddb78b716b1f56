"""`make test-sglang` sets DDTREE_SGLANG to the assembled engine; without it nothing here runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sglang_cpu.device import DEVICE

ENGINE = os.environ.get("DDTREE_SGLANG")
collect_ignore_glob = [] if ENGINE else ["test_*.py"]

if DEVICE != "cpu":
    import torch

    torch.set_default_device(DEVICE)

Tally = Callable[[str], None]


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    """Takes what a server counted; it is printed at the end of the run."""
    return lambda line: record_property("tally", line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed"):
        for name, line in report.user_properties:
            if name == "tally":
                terminalreporter.write_line(f"{report.nodeid.split('::')[-1]}: {line}")


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
