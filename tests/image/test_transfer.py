"""What makes two images one, whatever their hosts call them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ddtree_ops_cli.image.transfer import CopyPlan, contents

# Of `docker image inspect` of one image: 26.1 with overlay2, and with containerd's store.
HERE: dict[str, Any] = {
    "Id": "sha256:08298ab68e1f",
    "Architecture": "amd64",
    "Size": 203_000_000,
    "Config": {
        "Cmd": ["python3"],
        "Entrypoint": None,
        "Env": ["OMP_NUM_THREADS=1"],
        "ExposedPorts": None,
        "Labels": {"dev.ddtree.engine": "lab 0.1.0"},
        "User": "engine",
        "WorkingDir": "",
    },
    "RootFS": {"Type": "layers", "Layers": ["sha256:b02a", "sha256:5920"]},
}
THERE: dict[str, Any] = {
    **copy.deepcopy(HERE),
    "Id": "sha256:f71a0a6b1be1",
    "Size": 208_000_000,
    "RepoDigests": ["engine@sha256:f71a0a6b1be1"],
}
THERE["Config"] = {**HERE["Config"], "Entrypoint": [], "ExposedPorts": {}}


def test_one_image_is_the_same_under_two_identities() -> None:
    assert contents(HERE) == contents(THERE)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("RootFS", "Layers", ["sha256:b02a", "sha256:77"]),
        ("RootFS", "Layers", ["sha256:5920", "sha256:b02a"]),
        ("Config", "Labels", {"dev.ddtree.engine": "lab 0.2.0"}),
        ("Config", "User", ""),
        ("Config", "Entrypoint", ["/bin/sh"]),
    ],
)
def test_another_layer_or_configuration_is_another_image(
    section: str, key: str, value: object
) -> None:
    other = copy.deepcopy(THERE)
    other[section][key] = value
    assert contents(other) != contents(HERE)


def test_a_plan_says_whether_anything_has_to_be_sent() -> None:
    plan = CopyPlan("a:b", "sha256:1", contents(HERE), 2_000_000, None)
    assert plan.told == "would send a:b (sha256:1), about 2 MB"
    assert plan.document()["there_already"] is False
    assert CopyPlan("a:b", "sha256:1", {}, 1, "sha256:2").told.startswith("a:b is there already")
