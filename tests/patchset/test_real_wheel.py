"""The real wheel of SGLang, fetched with pip: applied and reverted, byte for byte."""

from __future__ import annotations

import difflib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ddtree_ops_cli.bundled import bundled
from ddtree_ops_cli.patchset.apply import apply, revert
from ddtree_ops_cli.patchset.hunks import applied, parse
from ddtree_ops_cli.patchset.verify import survey
from tests.patchset.sample import ARGS, NEW, SPEC, VERSION, fingerprint, refresh
from tests.sglang_gpu.fleet import faults, float32

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def wheel(pytestconfig: pytest.Config) -> Path:
    """Fetched once (22 MB), and kept in pytest's cache for the next sessions."""
    folder = pytestconfig.cache.mkdir("sglang-wheel")
    name = f"sglang-{VERSION}-*.whl"
    if not list(folder.glob(name)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*command, "--dest", str(folder), f"sglang=={VERSION}"], check=True)
    [found] = folder.glob(name)
    return found


@pytest.fixture(scope="module")
def tree(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sglang")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(root)
    return root


def test_a_set_of_two_files_and_a_package(tree: Path, tmp_path: Path) -> None:
    patches = tmp_path / "patches"
    folder = patches / f"sglang-{VERSION}"
    folder.mkdir(parents=True)
    entries = []
    for number, path in enumerate((ARGS, SPEC), 1):
        old = (tree / path).read_text(encoding="utf-8").splitlines(keepends=True)
        middle = len(old) // 2
        new = [*old[:middle], "# a line in the middle\n", *old[middle:], "# and a last one\n"]
        name = f"000{number}-line.patch"
        diff = "".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"))
        (folder / name).write_text(diff, encoding="utf-8")
        entries.append(f"- {{file: {name}, purpose: x, upstream: none, drop: until never}}\n")
    for name, content in NEW.items():
        place = patches / "ddtree" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    (folder / "manifest.yaml").write_text(
        f"patches:\n{''.join(entries)}"
        "modules: {source: ddtree, target: sglang/srt/speculative/ddtree}\n"
    )
    done = refresh(tree, patches)
    assert done.returncode == 0, done.stderr
    _there_and_back(tree, patches)


def test_the_bundled_set(tree: Path) -> None:
    done = refresh(tree, bundled("patches"), "--check")
    assert done.returncode == 0, done.stderr
    _there_and_back(tree, bundled("patches"))


def test_what_the_gpu_tests_plant_fits_the_bundled_set(tree: Path) -> None:
    """Line by line: a GPU host is no place to find a stale fault."""
    assert apply(tree, bundled("patches")).changed
    try:
        for name, patch in {**faults(), **float32()}.items():
            for path, change in parse(patch.read_bytes(), where=name).items():
                assert applied(change, (tree / path).read_bytes(), where=name)
    finally:
        revert(tree, bundled("patches"))


def _there_and_back(tree: Path, patches: Path) -> None:
    before = fingerprint(tree, inodes=True)
    assert survey(tree, patches).state == "unpatched"
    assert apply(tree, patches).changed
    assert survey(tree, patches).state == "applied"
    assert not apply(tree, patches).changed
    assert revert(tree, patches).changed
    assert fingerprint(tree, inodes=True) == before
