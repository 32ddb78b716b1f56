"""A host of the test's own: real lab engines on a tiny random pair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Ddtree, free_ports
from tests.lab.random_pair import write_random_pair

GPUS = 3


@pytest.fixture(scope="session")
def random_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_random_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def base_port() -> int:
    return free_ports(GPUS)[0]


@pytest.fixture
def tiny(ddtree: Ddtree, random_pair: tuple[Path, Path], base_port: int) -> Iterator[Ddtree]:
    """`ddtree` with a host `tiny` and its model; what it left running is stopped."""
    target, drafter = random_pair
    profiles = ddtree.home / ".config/ddtree/profiles"
    write(
        profiles / "hosts/tiny.yaml",
        f"description: tiny\nruntime: process\ngpus: {GPUS}\nbase_port: {base_port}\n"
        "model: tiny-pair\nready_timeout_s: 60\n",
    )
    write(
        profiles / "models/tiny-pair.yaml",
        f"description: tiny\ntarget: {target}\ndrafter: {drafter}\nserved_name: tiny-pair\n"
        "context_length: 512\nblock_size: 16\nhybrid: true\n",
    )
    yield ddtree
    for gpu in range(GPUS):
        ddtree("stop", "tiny", "--gpu", str(gpu))


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
