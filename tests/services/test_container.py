"""Profiles and facts in, the whole request to Docker out; each case is a file, to be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddtree_ops_cli.bundled import bundled
from ddtree_ops_cli.errors import DdtreeError
from ddtree_ops_cli.hosts.container_engine import ContainerEngine
from ddtree_ops_cli.hosts.gpus import Gpu
from ddtree_ops_cli.profiles.locate import Library
from ddtree_ops_cli.services.container import Container, Image, define, require, to_api
from ddtree_ops_cli.services.spec import Overrides, ServiceSpec, decide

CASES = sorted((Path(__file__).parent / "cases/containers").glob("*.json"))
GPU = Gpu(
    index=1, uuid="GPU-aaaa", name="RTX PRO 6000", memory_total_mib=97887, memory_used_mib=4,
    compute_capability="12.0", driver="580.95.05", mig=False, ecc=True, holders=(),
)  # fmt: skip
HOST = "description: a host\nruntime: docker\naddress: gpu.example.com\nmodel: pair\n"
MODEL = "description: a pair\nextends: qwen3.6-27b\n"
DIGEST = "sha256:" + "0123456789ab" + 52 * "0"


def spec_of(folder: Path, case: dict[str, Any]) -> ServiceSpec:
    for kind, name, text in (
        ("hosts", "box", HOST + case.get("host", "")),
        ("models", "pair", MODEL + case.get("model", "")),
        ("services", "mine", f"extends: {case['extends']}\n" + case.get("service", "")),
    ):
        (folder / kind).mkdir()
        (folder / kind / f"{name}.yaml").write_text(text)
    library = Library([folder, bundled("profiles")])
    overrides = Overrides(**case.get("overrides", {}))
    return decide(library.host("box"), library.service("mine"), library.model("pair"), 1, overrides)


def engine(*access: str, devices: tuple[str, ...] = ()) -> ContainerEngine:
    return ContainerEngine("28.5.1", "/var/lib/docker", False, "overlay2", access, devices)  # type: ignore[arg-type]


def image(labels: dict[str, str] | None = None) -> Image:
    return Image("ddtree/sglang:0.5.17", DIGEST, labels or {}, None)


def defined(folder: Path, case: dict[str, Any]) -> Container:
    facts = engine(*case["gpu_access"], devices=tuple(case.get("cdi_devices", ())))
    return define(spec_of(folder, case), image(), GPU, facts, hub=case.get("hub"))


@pytest.mark.parametrize("file", CASES, ids=[file.stem for file in CASES])
def test_docker_is_asked_for_exactly_this(tmp_path: Path, file: Path) -> None:
    case = json.loads(file.read_text())
    asked = to_api(defined(tmp_path, case), {"dev.ddtree.service": "mine"})
    assert asked == case["asked"]


def test_the_image_is_started_by_its_digest_so_that_a_moved_tag_changes_nothing(
    tmp_path: Path,
) -> None:
    container = defined(tmp_path, {"extends": "ddtree", "gpu_access": ["gpus"]})
    assert to_api(container, {})["Image"] == DIGEST
    assert container.image == "ddtree/sglang:0.5.17"


def test_until_it_is_proven_a_container_is_not_started_again(tmp_path: Path) -> None:
    container = defined(tmp_path, {"extends": "ddtree", "gpu_access": ["gpus"]})
    assert container.restart == "unless-stopped"
    assert to_api(container, {})["HostConfig"]["RestartPolicy"] == {"Name": "no"}


@pytest.mark.parametrize(
    ("access", "devices", "wanted", "says"),
    [
        ((), (), "auto", "no container can have a GPU; install the NVIDIA container toolkit"),
        (("gpus",), (), "cdi", "no container can have a GPU by cdi; set gpu_access"),
        (("cdi",), ("nvidia.com/gpu=0",), "auto", r"no CDI file describes GPU 1 \(GPU-aaaa\)"),
    ],
)
def test_a_host_that_cannot_give_the_gpu_is_told_what_to_mend(
    tmp_path: Path, access: tuple[str, ...], devices: tuple[str, ...], wanted: str, says: str
) -> None:
    spec = spec_of(tmp_path, {"extends": "ddtree", "host": f"gpu_access: {wanted}\n"})
    with pytest.raises(DdtreeError, match=says):
        define(spec, image(), GPU, engine(*access, devices=devices), hub=None)


def test_the_patch_set_is_required_of_the_image_where_the_service_says_so(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, {"extends": "ddtree"})
    require(spec, image({"dev.ddtree.patch_set": "b8"}))
    with pytest.raises(DdtreeError, match=r"requires the patch set, and image ddtree/sglang:0\.5"):
        require(spec, image())


def test_plain_decoding_takes_an_image_without_patches(tmp_path: Path) -> None:
    require(spec_of(tmp_path, {"extends": "plain"}), image())
