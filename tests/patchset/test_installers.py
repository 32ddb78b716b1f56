"""Real pip sees nothing wrong in a patched installation, and removes all of it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ddtree_ops_cli.patchset.apply import apply, revert
from ddtree_ops_cli.patchset.verify import survey
from tests.patchset.sample import ADDED, FILES, RECORD, VERSION, Sample, fingerprint


@pytest.fixture
def environment(sample: Sample, tmp_path: Path) -> Path:
    """A virtual environment with the sample's wheel, installed by pip."""
    wheel = tmp_path / f"sglang-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in (*FILES, RECORD):
            archive.write(sample.tree / path, path)
    root = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root)], check=True)
    pip(root, "install", "--quiet", "--no-index", "--no-deps", str(wheel))
    return root


def pip(environment: Path, *words: str) -> str:
    """The pip of this Python, working on another environment."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(environment / "bin/python"), *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rest(environment: Path) -> list[str]:
    [site] = environment.glob("lib/python3*/site-packages")
    return sorted(place.relative_to(site).as_posix() for place in site.rglob("*"))


def test_an_uninstall_of_a_patched_sglang_leaves_nothing(environment: Path, sample: Sample) -> None:
    apply(environment, sample.patches)
    assert set(ADDED) <= set(rest(environment))
    assert "No broken requirements" in pip(environment, "check")
    listed = pip(environment, "show", "--files", "sglang").split()
    assert set(ADDED) <= set(listed)
    pip(environment, "uninstall", "--quiet", "--yes", "sglang")
    assert rest(environment) == []


def test_a_reinstall_of_a_patched_sglang_is_clean(environment: Path, sample: Sample) -> None:
    before = rest(environment)
    apply(environment, sample.patches)
    [wheel] = environment.parent.glob("*.whl")
    words = ("--quiet", "--no-index", "--no-deps", "--force-reinstall", str(wheel))
    pip(environment, "install", *words)
    assert rest(environment) == before
    assert survey(environment, sample.patches).state == "unpatched"


def test_an_environment_is_the_same_after_a_revert_but_for_caches(
    environment: Path, sample: Sample
) -> None:
    def files() -> dict[str, tuple[object, ...]]:
        everything = fingerprint(environment, inodes=True)
        return {path: facts for path, facts in everything.items() if "__pycache__" not in path}

    before = files()
    apply(environment, sample.patches)
    revert(environment, sample.patches)
    assert files() == before
