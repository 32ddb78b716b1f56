"""What a build would do, and what keeps it from beginning; from data alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddtree_ops_cli.bundled import bundled
from ddtree_ops_cli.errors import DdtreeError
from ddtree_ops_cli.hosts.container_engine import ContainerEngine, failure
from ddtree_ops_cli.hosts.facts import Disk, HostFacts, System
from ddtree_ops_cli.hosts.gpus import Gpu, Holder
from ddtree_ops_cli.hosts.unknown import Unknown
from ddtree_ops_cli.image.plan import BuildPlan, plan
from ddtree_ops_cli.image.recipe import Recipe, recipe_of

GIB = 1 << 30
LOCK = {"torch": "2.11.0"}
RECIPE = Recipe("cuda:13", "locked", "12.0a", "ddtree/sglang:0.5.17")


def gpu(index: int, *holders: Holder) -> Gpu:
    return Gpu(index, f"GPU-{index}", "x", 97887, 4, "12.0", "580.95", None, None, holders)


ENGINE = ContainerEngine("26.1", "/var/lib/docker", False, "overlay2", ("gpus",))
FACTS = HostFacts(
    system=System("gpu1", "Linux 6", "x86_64", "Debian"),
    engine=ENGINE,
    disks=(Disk("/", 500 * GIB, 9 * GIB), Disk("/var", 900 * GIB, 100 * GIB)),
    gpus=(gpu(0, Holder(7, "ops", "python3", 900)), gpu(1)),
)


def planned(
    facts: HostFacts = FACTS, recipe: Recipe = RECIPE, base: dict[str, Any] | None = None
) -> BuildPlan:
    return plan(
        "gpu1", recipe, digest="c0ffee" * 10, size=80_000_000, files=3900,
        labels={"VERSION": "1", "PATCH_SET": "b8"}, facts=facts, base=base, lock=LOCK,
        wheel="sglang-0.5.17-cp312-cp312-manylinux_2_34_x86_64.whl",
    )  # fmt: skip


def test_the_steps_are_told_in_order_with_what_they_take() -> None:
    assert planned().steps == (
        "send 3900 files, 80.0 MB, as context c0ffeec0ffee",
        "build on cuda:13 with packages: locked, compute capability 12.0a",
        "run the doctor in the image with GPU 1 (GPU-1); every blocking check must pass",
        "tag ddtree/sglang:0.5.17",
    )


def test_what_was_accepted_is_said() -> None:
    steps = planned(recipe=replace(RECIPE, accepted=("jit-compile",))).steps
    assert steps[2].endswith("must pass, but for jit-compile")


@pytest.mark.parametrize(("archs", "deepgemm"), [("12.0a", "0"), ("10.0a", "1"), ("9.0a", "1")])
def test_deepgemm_is_off_on_blackwell_alone(archs: str, deepgemm: str) -> None:
    made = planned(recipe=replace(RECIPE, cuda_archs=archs))
    assert made.arguments["DEEPGEMM"] == deepgemm
    assert made.recipe.arch == int(archs.rstrip("a").replace(".", ""))


def test_a_host_whose_containers_get_no_gpu_tries_the_image_without_one_if_that_is_accepted() -> (
    None
):
    engine = replace(ENGINE, gpu_access=())
    made = planned(replace(FACTS, engine=engine), replace(RECIPE, accepted=("driver-answers",)))
    assert made.gpu is made.device is None
    assert "with no GPU" in made.steps[2]
    assert "no_gpu" not in made.intent  # nothing excuses what the doctor will miss


def test_a_gpu_in_use_is_left_alone_and_the_doctor_told_why_it_sees_none() -> None:
    made = planned(replace(FACTS, gpus=(gpu(0, Holder(7, "ops", "python3", 900)),)))
    assert made.gpu is made.device is None
    assert "every GPU of the host is in use" in made.intent["no_gpu"]


def test_the_doctor_checks_for_the_gpu_it_got_and_what_the_image_is_built_for() -> None:
    assert planned().intent == {
        "patch_set": "b8",
        "arch": 120,
        "gpu_uuid": "GPU-1",
        "lock": LOCK,
    }
    assert planned().device == {
        "Driver": "nvidia",
        "DeviceIDs": ["GPU-1"],
        "Capabilities": [["gpu"]],
    }


@pytest.mark.parametrize(
    ("facts", "base", "says"),
    [
        (replace(FACTS, engine=failure(127, "")), None, "Docker is not installed"),
        (
            replace(FACTS, disks=(Disk("/", 500 * GIB, 9 * GIB),)),
            None,
            "/ has 9.0 GiB free for /var/lib/docker; the build needs about 40.3",
        ),
        (FACTS, {"Architecture": "arm64"}, "the base cuda:13 is for arm64; the host is amd64"),
        (
            replace(FACTS, engine=replace(ENGINE, gpu_access=())),
            None,
            "the NVIDIA container toolkit is missing, so the doctor could not try the image",
        ),
        (replace(FACTS, gpus=()), None, "it has no GPU, so the doctor could not try the image"),
        (
            replace(FACTS, gpus=Unknown("nvidia-smi is not installed", None)),
            None,
            "nvidia-smi is not installed, so the doctor could not try the image",
        ),
    ],
    ids=["no Docker", "no space", "architecture", "no runtime", "no GPU", "no driver"],
)
def test_a_build_that_cannot_end_well_does_not_begin(
    facts: HostFacts, base: dict[str, Any] | None, says: str
) -> None:
    with pytest.raises(DdtreeError) as caught:
        planned(facts, base=base)
    assert says in str(caught.value)
    assert str(caught.value).startswith("host gpu1: ")
    assert caught.value.mend


def test_what_was_compiled_for_another_processor_is_refused_by_name() -> None:
    arm = replace(FACTS, system=System("gpu1", "Linux 6", "aarch64", "Debian"))
    with pytest.raises(DdtreeError, match="the locked packages are for x86_64; the host is aarch"):
        planned(arm)
    with pytest.raises(DdtreeError, match=r"_x86_64\.whl is for x86_64; the host is aarch64"):
        planned(arm, replace(RECIPE, packages="base"))


def test_a_small_base_needs_no_more_space_than_the_context_takes() -> None:
    facts = replace(FACTS, disks=(Disk("/", 500 * GIB, 1 * GIB),))
    assert planned(facts, replace(RECIPE, packages="base")).needed_bytes == 320_000_000


def test_what_is_not_asked_for_is_what_the_dockerfile_says() -> None:
    text = (bundled("docker") / "Dockerfile").read_text()
    made = recipe_of(base=None, packages="locked", cuda_archs=None, tag=None, accepted=())
    assert f"ARG BASE={made.base}\n" in text
    assert f"ARG CUDA_ARCHS={made.cuda_archs}\n" in text
    assert (made.arch, made.tag) == (120, "ddtree/sglang:0.5.17")
