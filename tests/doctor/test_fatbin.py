"""GPU images in libraries that nvcc made, and which GPUs they run on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ddtree_ops_cli.doctor.portable.elf import read
from ddtree_ops_cli.doctor.portable.fatbin import containers, parsed, runs_on

ARTEFACTS = Path(__file__).parent / "artefacts"


@pytest.mark.parametrize(
    ("name", "images"),
    [
        ("with-sm120.so", {"sm_90a", "sm_103a", "sm_120f"}),
        ("without-sm120.so", {"sm_90a", "sm_100"}),
        ("only-ptx.so", {"compute_75"}),
    ],
)
def test_the_images_are_those_that_nvcc_was_asked_for(name: str, images: set[str]) -> None:
    path = ARTEFACTS / name
    found = containers(path, read(path).sections[".nv_fatbin"])
    assert {image.name for container in found for image in container} == images


@pytest.mark.parametrize(
    ("image", "arch", "runs"),
    [
        ("sm_120", 120, True),
        ("sm_120", 121, True),
        ("sm_121", 120, False),
        ("sm_100", 120, False),
        ("sm_80", 89, True),
        ("sm_90", 120, False),
        ("sm_120a", 120, True),
        ("sm_120a", 121, False),
        ("sm_120f", 121, True),
        ("sm_100f", 103, True),
        ("sm_103f", 100, False),
        ("compute_75", 120, True),
        ("compute_120", 90, False),
        ("compute_90a", 120, False),
        ("compute_120f", 121, True),
    ],
)
def test_an_image_runs_where_cuda_says_that_it_does(image: str, arch: int, runs: bool) -> None:
    assert runs_on(parsed(image), arch) == runs


def test_the_images_of_sglangs_kernels_are_those_that_cuobjdump_lists() -> None:
    """Both read the same wheel, sglang-kernel 0.4.5; cuobjdump 13.0 did so on a GPU host."""
    listed = (ARTEFACTS.parent / "cuobjdump-common_ops.txt").read_text()
    facts = json.loads((ARTEFACTS.parent / "kernels-of-torch-2.11-on-2.13.json").read_text())
    [group] = facts["libraries"]["sm90/common_ops.abi3.so"]["images"]
    assert set(group["images"]) == set(re.findall(r"sm_\w+", listed))


@pytest.mark.parametrize("name", ["sm_120a", "sm_90", "compute_100f"])
def test_a_name_survives_the_way_through_json(name: str) -> None:
    assert parsed(name).name == name
