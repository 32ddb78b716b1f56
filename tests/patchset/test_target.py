"""SGLang is found wherever an operator points, or the mistake is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ddtree_ops_cli.errors import PatchMismatch, UsageError
from ddtree_ops_cli.patchset.target import Installation, NotSglang, locate
from tests.patchset.sample import DIST_INFO, VERSION, write_tree


def site_of(target: Path) -> Path:
    found = locate(target)
    assert isinstance(found, Installation)
    assert found.version == VERSION
    assert found.dist_info == found.site / DIST_INFO
    return found.site


@pytest.mark.parametrize(
    "inside", ["", "lib/python3.11/site-packages", "lib/python3.12/dist-packages"]
)
def test_a_folder_of_packages_or_an_environment(tmp_path: Path, inside: str) -> None:
    write_tree(tmp_path / "env" / inside)
    assert site_of(tmp_path / "env") == tmp_path / "env" / inside


def test_lib64_that_links_to_lib_is_one_place(tmp_path: Path) -> None:
    write_tree(tmp_path / "lib/python3.11/site-packages")
    (tmp_path / "lib64").symlink_to("lib")
    assert site_of(tmp_path) == tmp_path / "lib/python3.11/site-packages"


def test_an_environment_with_several_pythons_has_the_one_with_sglang(tmp_path: Path) -> None:
    write_tree(tmp_path / "lib/python3.12/site-packages")
    (tmp_path / "lib/python3.11/site-packages").mkdir(parents=True)
    assert site_of(tmp_path) == tmp_path / "lib/python3.12/site-packages"


def test_several_places_are_named(tmp_path: Path) -> None:
    for python in ("3.11", "3.12"):
        write_tree(tmp_path / f"lib/python{python}/site-packages")
    with pytest.raises(UsageError, match=r"in several places: .*3\.11.*, .*3\.12.*; give one of"):
        locate(tmp_path)


def test_a_wrong_path_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: no such directory"):
        locate(tmp_path / "nowhere")
    wheel = tmp_path / "sglang-0.5.17-py3-none-any.whl"
    wheel.touch()
    with pytest.raises(UsageError, match="not a directory; unpack the wheel"):
        locate(wheel)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    def reason(target: Path) -> str:
        found = locate(target)
        assert isinstance(found, NotSglang)
        return found.reason

    assert "no sglang/ in it" in reason(tmp_path)
    tree = write_tree(tmp_path / "tree")
    assert f"give the folder that holds it: {tree}" in reason(tree / "sglang")
    shutil.rmtree(tree / DIST_INFO)
    assert "no sglang-VERSION.dist-info" in reason(tree)


def test_a_folder_that_an_uninstall_left_is_no_version(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    (tree / "sglang-0.5.9.dist-info").mkdir()
    assert site_of(tree) == tree


def test_two_registered_versions_are_refused(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    other = tree / "sglang-0.5.9.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Name: sglang\nVersion: 0.5.9\n")
    with pytest.raises(PatchMismatch, match=r"registered: 0\.5\.17, 0\.5\.9; reinstall"):
        locate(tree)


def test_a_package_that_is_a_link_is_refused(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    (tree / "sglang").rename(tmp_path / "elsewhere")
    (tree / "sglang").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PatchMismatch, match=r"is a link to .*elsewhere"):
        locate(tree)
