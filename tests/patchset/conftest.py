"""A small wheel that looks like SGLang's, and a small patch set for it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.patchset.sample import Sample, write_patches, write_tree


@pytest.fixture(scope="session")
def sample_patches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_patches(tmp_path_factory.mktemp("sample") / "patches")


@pytest.fixture
def sample(tmp_path: Path, sample_patches: Path) -> Sample:
    patches = shutil.copytree(sample_patches, tmp_path / "patches")
    return Sample(write_tree(tmp_path / "tree"), patches)
