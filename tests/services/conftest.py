from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.random_pair import write_random_pair
from tests.services.pair_on_disk import write_pair


@pytest.fixture(scope="session")
def random_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_random_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def pair(random_pair: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Folders of the test's own."""
    return write_pair(random_pair, tmp_path)
