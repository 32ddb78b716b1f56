"""What is in two images, compared."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from ddtree_ops_cli.errors import ProfileError
from ddtree_ops_cli.image.lock import Drift, compared, locked, read
from tests.doctor.failing import healthy

IMAGE = {
    "Id": "sha256:aa",
    "Config": {"Labels": {"dev.ddtree.engine": "sglang 0.5.17", "dev.ddtree.patch_set": "b8"}},
    "RootFS": {"Layers": ["sha256:01", "sha256:02"]},
}


@pytest.fixture
def lock() -> dict[str, Any]:
    return locked(IMAGE, healthy())


def other(lock: dict[str, Any]) -> dict[str, Any]:
    return {**copy.deepcopy(lock), "image": "sha256:bb"}


def test_a_lock_holds_versions_hashes_and_abi_facts(lock: dict[str, Any]) -> None:
    assert (lock["image"], lock["layers"]) == ("sha256:aa", ["sha256:01", "sha256:02"])
    assert lock["packages"]["torch"] == "2.11.0"
    library = lock["libraries"]["sm100/common_ops.abi3.so"]
    assert "libcudart.so.13" in library["needed"]
    assert library["cxx11"] is True
    assert "sm_120a" in library["images"][0]["images"]


def test_one_image_on_two_hosts_has_no_drift(lock: dict[str, Any]) -> None:
    assert compared(lock, copy.deepcopy(lock)) == ()


def test_each_difference_is_named_with_both_sides(lock: dict[str, Any]) -> None:
    second = other(lock)
    second["packages"]["torch"] = "2.11.1"
    del second["packages"]["soundfile"]
    second["labels"]["dev.ddtree.patch_set"] = "c9"
    second["changed"] = ["sglang/srt/server_args.py"]
    second["libraries"]["spatial_ops.abi3.so"]["cxx11"] = False
    del second["libraries"]["flash_ops.abi3.so"]
    assert compared(lock, second) == (
        Drift("changed", "[]", '["sglang/srt/server_args.py"]'),
        Drift("image", "sha256:aa", "sha256:bb"),
        Drift("label dev.ddtree.patch_set", "b8", "c9"),
        Drift("package soundfile", "0.13.1", None),
        Drift("package torch", "2.11.0", "2.11.1"),
        Drift("library flash_ops.abi3.so", "there", None),
        Drift("library spatial_ops.abi3.so: cxx11", "true", "false"),
    )


def test_one_image_with_two_identities_has_no_drift_if_its_layers_are_the_same(
    lock: dict[str, Any],
) -> None:
    assert compared(lock, other(lock)) == ()
    drift = (Drift("image", "sha256:aa", "sha256:bb"),)
    assert compared(lock, {**other(lock), "layers": ["sha256:01"]}) == drift
    assert compared({**lock, "layers": []}, {**other(lock), "layers": []}) == drift


def test_a_lock_survives_the_way_through_a_file(lock: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "image.lock.json"
    file.write_text(json.dumps(lock))
    assert read(file) == lock


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "is no lock of an image"),
        ('{"format": 2}', "is no lock of an image"),
        ('{"format": 1, "image": "x", "labels": {}}', "lacks libraries, packages"),
    ],
)
def test_a_file_that_is_no_lock_is_named(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text)
    with pytest.raises(ProfileError) as caught:
        read(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert says in str(caught.value)


def test_a_lock_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be read"):
        read(tmp_path / "none.json")
