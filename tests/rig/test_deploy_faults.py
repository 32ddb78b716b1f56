"""What deploy says, and leaves, where the host or the way to it is broken."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.rig import gpus, images
from tests.rig.conftest import Box, Operator
from tests.rig.rig import Rig

DEPLOY = ("deploy", "gpu1", "--gpu", "1")


@pytest.fixture
def gpu1(gpu_host: Box, operator: Operator) -> Box:
    operator.serves("gpu1", gpu_host)
    return gpu_host


def refused(operator: Operator, *words: str, exit_code: int = 1) -> str:
    """What a command that must fail says; one line without a traceback."""
    done = operator.ddtree(*(words or DEPLOY))
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def containers(box: Box) -> list[str]:
    return box.host.run("docker", "ps", "--all", "--format", "{{.Names}}").split()


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("9", "the NVIDIA driver is not loaded"),
        ("6", "nvidia-smi finds no GPU"),
        ("15", "a GPU has fallen off the bus"),
        ("18", "driver and library of NVIDIA differ in version"),
        ("hang", "nvidia-smi hangs"),
    ],
)
def test_nothing_is_started_where_the_gpus_cannot_be_read(
    gpu1: Box, operator: Operator, fault: str, what: str
) -> None:
    gpu1.host.write("/etc/rig-nvidia-smi", fault)
    assert what in refused(operator)
    assert containers(gpu1) == []


def test_nothing_is_started_without_nvidia_smi(gpu1: Box, operator: Operator) -> None:
    gpu1.host.run("mv", "/usr/bin/nvidia-smi", "/root/")
    try:
        assert "nvidia-smi is not installed" in refused(operator)
    finally:
        gpu1.host.run("mv", "/root/nvidia-smi", "/usr/bin/")
    assert containers(gpu1) == []


def test_a_user_without_docker_rights_is_told_how_to_get_them(
    gpu1: Box, operator: Operator
) -> None:
    operator.serves("gpu1", gpu1, "user: guest\n")
    said = refused(operator)
    assert "this user may not use Docker" in said
    assert "usermod -aG docker" in said


def test_a_docker_that_is_down_is_said_to_be(gpu1: Box, operator: Operator) -> None:
    gpu1.host.stop_docker()
    try:
        assert "Docker is not running" in refused(operator)
        assert "Docker is not running" in refused(operator, "stop", "gpu1")
    finally:
        gpu1.host.start_docker()


@pytest.fixture
def full(gpu1: Box) -> Iterator[Box]:
    """No room for another container's files."""
    folder = "/var/lib/docker/containers"
    gpu1.host.stop_docker()
    gpu1.host.run("mount", "-t", "tmpfs", "-o", "size=4k", "full", folder)
    gpu1.host.run("sh", "-c", f"head -c 100k /dev/zero >{folder}/filler", check=False)
    gpu1.host.start_docker()
    yield gpu1
    gpu1.host.stop_docker()
    gpu1.host.run("umount", folder)
    gpu1.host.start_docker()


def test_a_full_disk_is_named_and_leaves_no_container(full: Box, operator: Operator) -> None:
    assert "no space left on device" in refused(operator)
    assert containers(full) == []


def test_a_host_that_is_off_is_unreachable(rig: Rig, gpu1: Box, operator: Operator) -> None:
    rig.plug(gpu1.cable, up=False)
    try:
        begin = time.monotonic()
        assert gpu1.address in refused(operator, exit_code=4)
        assert time.monotonic() - begin < 60
    finally:
        rig.plug(gpu1.cable, up=True)
    assert containers(gpu1) == []


def test_a_link_cut_during_deploy_is_noticed_and_the_service_can_be_stopped_later(
    rig: Rig, gpu1: Box, operator: Operator
) -> None:
    operator.serves("gpu1", gpu1, container=f"image: {images.fault('hangs')}\n")
    deploy = operator.ddtree.start(*DEPLOY)
    try:
        for _ in range(300):
            if gpu1.host.run("docker", "ps", "--quiet"):
                break
            time.sleep(0.1)
        rig.plug(gpu1.cable, up=False)
        _, said = deploy.communicate(timeout=60)
    finally:
        rig.plug(gpu1.cable, up=True)
        deploy.kill()
        deploy.wait()
    assert deploy.returncode == 4, said
    assert "Traceback" not in said
    # Nothing of the cut deploy holds the host: the lock went with its connection.
    assert operator.ddtree("stop", "gpu1").returncode == 0
    assert "ddtree-gpu1" not in containers(gpu1)


def test_a_gpu_that_has_gone_is_named_and_its_service_can_be_stopped(
    gpu1: Box, operator: Operator
) -> None:
    done = operator.ddtree(*DEPLOY, "--service", "plain")
    assert done.returncode == 0, done.stderr
    usual = gpu1.host.read("/etc/rig-gpus.json")
    gpu1.host.write("/etc/rig-gpus.json", gpus.table(1))
    try:
        assert "no GPU 1" in refused(operator, exit_code=2)
        assert operator.ddtree("stop", "gpu1").returncode == 0
    finally:
        gpu1.host.write("/etc/rig-gpus.json", usual)
    assert gpu1.host.run("docker", "ps", "--quiet") == ""
