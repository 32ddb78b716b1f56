"""An image on two hosts: copied without a registry, and compared."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.conftest import DockerHosts
from tests.rig.image_base import BASE
from tests.rig.image_site import PATCH_SET, PATIENCE_S, Site, inspected, opened, tags
from tests.rig.rig import Rig

TAG = "ddtree/sglang:copy"


@pytest.fixture(scope="module")
def site(
    rig: Rig, docker_hosts: DockerHosts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    yield from opened(rig, docker_hosts, tmp_path_factory.mktemp("operator"))


@pytest.fixture(scope="module")
def built(site: Site) -> Any:
    """What `ddtree build` said of the image that most tests look at."""
    done = site.build(TAG)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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
    _, err = process.communicate(timeout=PATIENCE_S)
    rig.plug(site.gpu2.cable, up=True)
    assert process.returncode in (1, 4), err
    assert "gpu2" in err
    assert "Traceback" not in err
    assert tags(site.gpu2, TAG) == []

    done = site("image", "copy", "gpu1", "gpu2", "--image", TAG, "--json")
    assert done.returncode == 0, done.stderr
    copied = json.loads(done.stdout)
    assert copied["sent_bytes"] > 20_000_000
    assert inspected(site.gpu2, TAG)["Id"] == built["image"] == copied["identity"]
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


@pytest.fixture
def containerd_store(site: Site) -> Iterator[None]:
    """gpu2 keeps its images in containerd's store, as new installations of Docker 29 do."""
    host, file = site.gpu2.host, "/etc/docker/daemon.json"
    before = host.read(file)
    settings = json.loads(before)
    settings["features"]["containerd-snapshotter"] = True
    try:
        host.stop_docker()
        host.write(file, json.dumps(settings))
        host.start_docker()
        yield
    finally:
        host.run("sh", "-c", "docker images -aq | xargs -r docker rmi -f || true")
        host.stop_docker()
        host.write(file, before)
        host.start_docker()


def test_an_image_goes_to_a_host_that_keeps_images_differently_and_back(
    site: Site, built: Any, containerd_store: None
) -> None:
    """It has another identity there, and is known for the same."""

    def copied(source: str, target: str) -> Any:
        done = site("image", "copy", source, target, "--image", TAG, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    first = copied("gpu1", "gpu2")
    assert first["sent_bytes"] > 20_000_000
    assert inspected(site.gpu2, TAG)["Id"] == first["identity"] != built["image"]
    assert copied("gpu1", "gpu2")["sent_bytes"] == 0
    same = site("image", "diff", "gpu1", "gpu2", "--image", TAG)
    assert same.returncode == 0, same.stderr + same.stdout
    assert copied("gpu2", "gpu1")["sent_bytes"] == 0
    site.gpu1.host.run("docker", "rmi", TAG)
    back = copied("gpu2", "gpu1")
    assert (back["sent_bytes"] > 20_000_000, back["identity"]) == (True, built["image"])


def test_a_build_on_a_host_that_keeps_images_differently_is_tagged_and_looked_into(
    site: Site, built: Any, containerd_store: None
) -> None:
    assert site("image", "copy", "gpu1", "gpu2", "--image", BASE).returncode == 0
    words = site.building("ddtree/sglang:store")
    words[1] = "gpu2"
    done = site(*words)
    assert done.returncode == 0, done.stderr
    image = inspected(site.gpu2, "ddtree/sglang:store")
    assert json.loads(done.stdout)["image"] == image["Id"]
    listed = json.loads(site("image", "list", "gpu2", "--json").stdout)
    # The rig's base has the label of an image of the project; its layers are not listed.
    assert [one["tags"] for one in listed] == [["ddtree/sglang:store"], [BASE]]
    pruned = json.loads(site("image", "prune", "gpu2", "--cache", "--json").stdout)
    assert (pruned["images"], len(pruned["layers"])) == ([], 1)
    assert tags(site.gpu2, "ddtree/sglang:store") == ["ddtree/sglang:store"]
