"""A real build on real Docker hosts, without a registry: built, looked into, copied, compared."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Ddtree
from tests.rig import gpus
from tests.rig.conftest import Box, DockerHosts, Operator
from tests.rig.image_base import BASE, SGLANG, give_base, give_python, wheel
from tests.rig.rig import Rig
from tests.rig.trees import HERE

TAG = "ddtree/sglang:rig"
_PATIENCE_S = 400
"""A build takes half a minute on an idle machine."""
PATCH_SET = yaml.safe_load((HERE.parents[1] / "patches/sglang-0.5.17/manifest.yaml").read_text())[
    "set_hash"
]
# The base has neither PyTorch nor nvcc nor a driver's library; the doctor is right about it.
ACCEPTED = ("cuda-starts", "jit-compile", "kernel-import", "libraries-found")


@dataclass
class Site:
    """An operator with two hosts, `gpu1` that builds and `gpu2`, for all tests of this file."""

    operator: Operator
    gpu1: Box
    gpu2: Box
    words: tuple[str, ...]
    """Of a build on the small base."""

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.operator.ddtree.start(*words)
        out, err = process.communicate(timeout=_PATIENCE_S)
        return subprocess.CompletedProcess(list(words), process.returncode, out, err)

    def build(self, tag: str, *, base: str = BASE, accept: Sequence[str] = ACCEPTED) -> Any:
        accepted = [word for check in accept for word in ("--accept", check)]
        return self("build", "gpu1", "--base", base, "--tag", tag, *self.words, *accepted, "--json")


@pytest.fixture(scope="module")
def site(
    rig: Rig, docker_hosts: DockerHosts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    gpu1 = docker_hosts("rig1", "10.77.21", access="gpus")
    gpu2 = docker_hosts("rig2", "10.77.22", access="cdi")
    give_base(rig, gpu1.host)
    operator = Operator(home := tmp_path_factory.mktemp("operator"), Ddtree.at(home), rig.key)
    (home / ".ssh").mkdir(mode=0o700)
    operator.configure()
    operator.knows((gpu1.address, gpu1.host), (gpu2.address, gpu2.host))
    operator.profile("gpu1", gpu1.address)
    operator.profile("gpu2", gpu2.address)
    source = str(wheel(rig, SGLANG))
    yield Site(operator, gpu1, gpu2, ("--packages", "base", "--wheel", source))
    rig.plug(gpu2.cable, up=True)
    for box in (gpu1, gpu2):
        box.host.run(
            "sh",
            "-c",
            "docker ps -aq | xargs -r docker rm -f -v; docker images -q --filter "
            "label=dev.ddtree.context | sort -u | xargs -r docker rmi -f",
        )


@pytest.fixture(scope="module")
def built(site: Site) -> Any:
    """What `ddtree build` said of the image that most tests look at."""
    done = site.build(TAG)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def tags(box: Box, tag: str) -> list[str]:
    shown = box.host.run("docker", "images", "--format", "{{.Repository}}:{{.Tag}}")
    return [line for line in shown.splitlines() if line == tag]


def inspected(box: Box, reference: str = TAG) -> Any:
    return json.loads(box.host.run("docker", "image", "inspect", reference))[0]


def test_a_plan_says_what_a_build_does_and_changes_nothing(site: Site) -> None:
    tag = "ddtree/sglang:planned"
    done = site("build", "gpu1", "--base", BASE, "--tag", tag, *site.words, "--dry-run")
    assert done.returncode == 0, done.stderr
    sent, build, doctor, name = done.stdout.splitlines()
    assert sent.startswith("send 38")
    assert build == f"build on {BASE} with packages: base, compute capability 12.0a"
    assert f"with GPU 0 ({gpus.uuid(0)}); every blocking check must pass" in doctor
    assert name == f"tag {tag}"
    assert tags(site.gpu1, tag) == []


def test_a_build_is_tagged_and_known_by_its_labels(site: Site, built: Any) -> None:
    image = inspected(site.gpu1)
    assert built["image"] == image["Id"]
    labels = image["Config"]["Labels"]
    assert labels["dev.ddtree.patch_set"] == PATCH_SET
    assert labels["dev.ddtree.engine"] == "sglang 0.5.17"
    assert labels["dev.ddtree.context"] == built["context"]
    assert labels["org.opencontainers.image.base.name"] == BASE
    assert image["Config"]["User"] == "sglang"
    assert image["Config"]["Healthcheck"]["Test"][-1] == "/opt/ddtree/health.py"
    assert "SGLANG_ENABLE_JIT_DEEPGEMM=0" in image["Config"]["Env"]
    assert "Step 1/" in Path(built["log"]).read_text()
    assert site.gpu1.host.run("docker", "ps", "-aq").strip() == ""


def test_equal_inputs_give_the_same_image_again(site: Site, built: Any) -> None:
    again = json.loads(site.build(TAG).stdout)
    assert (again["context"], again["image"]) == (built["context"], built["image"])


def test_the_image_says_what_it_has_and_ends_with_8_where_it_cannot_run(
    site: Site, built: Any
) -> None:
    script = (
        f"docker run --rm --network none --gpus device=1 {TAG} python3 -V >/tmp/o 2>&1; echo $?; "
        f"cat /tmp/o; docker run --rm --network none -e DDTREE_DOCTOR=off {TAG} id -un"
    )
    code, *said, user = site.gpu1.host.run("sh", "-c", script).splitlines()
    assert code == "8"
    assert said[0].startswith(f"sglang 0.5.17 | patch set {PATCH_SET[:12]} | sglang-kernel 0.4.5")
    assert "RTX PRO 6000 Blackwell Server Edition (sm_12.0)" in said[0]
    assert any("libraries-found" in line for line in said)
    assert user == "sglang"


def test_an_image_with_a_blocking_fault_is_not_tagged(site: Site, built: Any) -> None:
    tag = "ddtree/sglang:faulty"
    done = site.build(tag, accept=[check for check in ACCEPTED if check != "libraries-found"])
    assert done.returncode == 8
    assert "the image is not tagged: libraries-found: " in done.stderr
    assert "libc10.so" in done.stderr
    assert tags(site.gpu1, tag) == []
    # Equal inputs made the very image that has a name already: it stays.
    assert inspected(site.gpu1)["Id"] == built["image"]
    assert site.gpu1.host.run("docker", "ps", "-aq").strip() == ""


def test_a_build_that_fails_in_the_middle_shows_its_last_lines_and_tags_nothing(
    site: Site,
) -> None:
    tag, broken = "ddtree/sglang:broken", "ddtree-rig/base:broken"
    recipe = f"FROM {BASE}\\nRUN rm -f /usr/bin/python3*\\n"
    site.gpu1.host.run("sh", "-c", f"printf '{recipe}' | docker build -t {broken} -")
    done = site.build(tag, base=broken)
    site.gpu1.host.run("docker", "rmi", "-f", broken)
    assert done.returncode == 1
    assert "the build failed: " in done.stderr
    assert "python3: not found" in done.stderr
    assert "Traceback" not in done.stderr
    assert tags(site.gpu1, tag) == []


def test_a_base_for_another_architecture_is_refused_before_anything_is_sent(site: Site) -> None:
    foreign = "ddtree-rig/base:arm"
    make = f"tar -c -T /dev/null | docker import --platform linux/arm64 - {foreign}"
    site.gpu1.host.run("sh", "-c", make)
    done = site.build("ddtree/sglang:arm", base=foreign)
    site.gpu1.host.run("docker", "rmi", foreign)
    assert done.returncode == 1
    assert f"the base {foreign} is for arm64; the host is amd64" in done.stderr


def test_a_copy_that_is_cut_leaves_nothing_tagged_and_can_be_repeated(
    site: Site, built: Any, rig: Rig
) -> None:
    dry = site("image", "copy", "gpu1", "gpu2", "--image", TAG, "--dry-run")
    assert "would send" in dry.stdout

    def received() -> int:
        return int(site.gpu2.host.read("/sys/class/net/eth0/statistics/rx_bytes"))

    before = received()
    process = site.operator.ddtree.start("image", "copy", "gpu1", "gpu2", "--image", TAG)
    while process.poll() is None and received() < before + 20_000_000:
        time.sleep(0.05)
    rig.plug(site.gpu2.cable, up=False)
    _, err = process.communicate(timeout=_PATIENCE_S)
    rig.plug(site.gpu2.cable, up=True)
    assert process.returncode in (1, 4), err
    assert "gpu2" in err
    assert "Traceback" not in err
    assert tags(site.gpu2, TAG) == []

    done = site("image", "copy", "gpu1", "gpu2", "--image", TAG, "--json")
    assert done.returncode == 0, done.stderr
    copied = json.loads(done.stdout)
    assert copied["sent_bytes"] > 20_000_000
    assert inspected(site.gpu2)["Id"] == built["image"] == copied["identity"]
    again = json.loads(site("image", "copy", "gpu1", "gpu2", "--image", TAG, "--json").stdout)
    assert again["sent_bytes"] == 0


def test_two_hosts_and_a_lock_are_compared_and_drift_is_named(
    site: Site, built: Any, tmp_path: Path
) -> None:
    assert site("image", "copy", "gpu1", "gpu2", "--image", TAG).returncode == 0
    same = site("image", "diff", "gpu1", "gpu2", "--image", TAG)
    assert same.returncode == 0, same.stderr
    lock = tmp_path / "image.lock.json"
    assert site("image", "lock", "gpu2", "--image", TAG, "--output", str(lock)).returncode == 0
    document = json.loads(lock.read_text())
    assert document["packages"]["sglang"] == "0.5.17"
    assert document["patch_set"] == PATCH_SET
    [group] = document["libraries"]["sm100/common_ops.abi3.so"]["images"]
    assert (group["containers"], "sm_120a" in group["images"]) == (51, True)

    document["image"], document["packages"]["sglang"] = "sha256:other", "0.5.9"
    lock.write_text(json.dumps(document))
    drifted = site("image", "diff", "gpu1", str(lock), "--image", TAG, "--json")
    assert drifted.returncode == 8
    drift = json.loads(drifted.stdout)["drift"]
    assert [one["what"] for one in drift] == ["image", "package sglang"]
    assert (drift[1]["first"], drift[1]["second"]) == ("0.5.17", "0.5.9")


def test_a_host_without_docker_is_one_line(site: Site, rig: Rig) -> None:
    plain = rig.boot("plain")
    rig.connect(None, plain, "10.77.24")
    operator, gpu1, gpu2 = site.operator, site.gpu1, site.gpu2
    known = [(box.address, box.host) for box in (gpu1, gpu2)]
    operator.knows(*known, ("10.77.24.2", plain))
    operator.profile("plain", "10.77.24.2")
    for words in (("build", "plain", *site.words), ("image", "list", "plain")):
        done = site(*words)
        assert done.returncode == 1
        assert "host plain: Docker is not running" in done.stderr
        assert "Traceback" not in done.stderr


def test_an_image_that_is_not_there_is_one_line(site: Site) -> None:
    absent = site("image", "lock", "gpu2", "--image", "ddtree/sglang:none")
    assert absent.returncode == 1
    assert "image ddtree/sglang:none is not there" in absent.stderr
    assert absent.stderr.count("\n") == 1


def test_the_doctor_sees_a_host_and_a_python_without_its_library_is_named(
    site: Site, built: Any, rig: Rig
) -> None:
    bare = site("doctor", "gpu2", "--json")
    assert bare.returncode == 1
    assert "the doctor did not run there" in bare.stderr
    assert "(Debian: python3, not python3-minimal)" in bare.stderr

    give_python(rig, site.gpu1.host)
    done = site("doctor", "gpu1", "--image", TAG, "--json")
    assert done.returncode == 8, done.stderr
    host, inside = json.loads(done.stdout)["places"]
    states = {finding["id"]: finding["state"] for finding in host["findings"]}
    assert states["driver-answers"] == states["attention-backend"] == "passed"
    assert states["kernel-images"] == "not checked"
    assert inside["place"] == f"image {TAG} on host gpu1"
    states = {finding["id"]: finding["state"] for finding in inside["findings"]}
    for check in ("driver-answers", "gpu-pinned", "kernel-images", "patch-set", "not-root"):
        assert states[check] == "passed", check
    failed = {f["id"] for f in inside["findings"] if f["state"] == "failed"}
    assert set(ACCEPTED) <= failed


def test_images_are_listed_and_those_that_nothing_names_or_uses_are_pruned(
    site: Site, built: Any
) -> None:
    host = site.gpu1.host

    def pruned() -> list[str]:
        done = site("image", "prune", "gpu1", "--json")
        return [image["identity"] for image in json.loads(done.stdout)["removed"]]

    listed = json.loads(site("image", "list", "gpu1", "--json").stdout)
    mine = next(image for image in listed if TAG in image["tags"])
    assert (mine["engine"], mine["patch_set"], mine["in_use"]) == (
        "sglang 0.5.17",
        PATCH_SET,
        False,
    )
    assert built["image"] not in pruned()
    used = host.run("docker", "create", TAG).strip()
    host.run("docker", "tag", BASE, TAG)  # as a newer build takes its name
    assert built["image"] not in pruned()
    host.run("docker", "rm", used)
    assert built["image"] in pruned()
    left = json.loads(site("image", "list", "gpu1", "--json").stdout)
    assert built["image"] not in {image["identity"] for image in left}
