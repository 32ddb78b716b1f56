"""Containers that fail: each is told apart, its log says why, and nothing is left of it."""

from __future__ import annotations

import json

import pytest

from tests.rig import images
from tests.rig.conftest import Box, Operator

DEPLOY = ("deploy", "gpu1", "--gpu", "1")


def failed(gpu_host: Box, operator: Operator, fault: str, more: str = "") -> str:
    """What a deploy says that ends as unhealthy; it leaves no container and no lock."""
    container = f"image: {images.fault(fault)}\n{more}"
    operator.serves("gpu1", gpu_host, container=container, ready_timeout_s=15)
    done = operator.ddtree(*DEPLOY)
    assert done.returncode == 6, done.stdout + done.stderr
    assert "\x1b" not in done.stderr
    assert gpu_host.host.run("docker", "ps", "-aq") == ""
    [run] = json.loads(operator.ddtree("history", "gpu1", "--json").stdout)[-1:]
    assert run["result"] == "failed"
    return done.stderr


def test_one_that_dies_at_the_start_is_noticed_at_once_with_its_last_words(
    gpu_host: Box, operator: Operator
) -> None:
    said = failed(gpu_host, operator, "dies")
    assert "ddtree on GPU 1: it ended with exit code 1, after" in said
    assert "  [2026-01-01 00:00:00] Load weight begin. avail mem=94.97 GB\n" in said
    assert "  Le modèle ne tient pas — 模型加载失败 🚫\n" in said
    assert "  RuntimeError: CUDA error: no kernel image is available" in said


def test_one_that_never_listens_is_given_up_at_the_deadline(
    gpu_host: Box, operator: Operator
) -> None:
    said = failed(gpu_host, operator, "hangs")
    assert "wait until it generates, 15 s at most: " in said
    assert " of 15 s, no answer yet: Load weight begin. avail mem=94.97 GB" in said
    assert "ddtree on GPU 1: not ready after " in said


def test_one_that_answers_health_with_a_dead_engine_is_not_ready(
    gpu_host: Box, operator: Operator
) -> None:
    said = failed(gpu_host, operator, "deaf")
    assert "its server is up and its model loaded, but it generates nothing" in said
    assert "  Scheduler hit an exception: CUDA error: an illegal memory access\n" in said


def test_one_that_is_killed_for_its_memory_says_so(gpu_host: Box, operator: Operator) -> None:
    said = failed(gpu_host, operator, "out-of-memory", "memory: 200m\n")
    assert "it was killed, for it took more memory than it may have (exit code 137)" in said


def test_a_limit_that_docker_refuses_is_its_words_and_leaves_nothing(
    gpu_host: Box, operator: Operator
) -> None:
    operator.serves("gpu1", gpu_host, container="user: nobody-knows\n")
    done = operator.ddtree(*DEPLOY)
    assert done.returncode == 1, done.stderr
    assert "Docker refuses to start ddtree-gpu1: " in done.stderr
    assert "nobody-knows" in done.stderr
    assert done.stderr.endswith("; correct container.user of the service\n")
    assert gpu_host.host.run("docker", "ps", "-aq") == ""


def test_one_that_ends_later_is_dead_with_the_reason_and_docker_starts_it_again(
    gpu_host: Box, operator: Operator
) -> None:
    operator.serves("gpu1", gpu_host)
    assert operator.ddtree(*DEPLOY).returncode == 0
    gpu_host.host.run("docker", "update", "--restart=no", "ddtree-gpu1")
    gpu_host.host.run("docker", "kill", "ddtree-gpu1")
    status = operator.ddtree("status", "gpu1", "--json")
    [service] = json.loads(status.stdout)["gpu1"]["services"]
    assert service["health"] == "dead"
    assert service["detail"].startswith("it ended with exit code 137, signal 9; see `ddtree logs")


def test_one_that_stands_still_later_is_unhealthy_though_its_container_runs(
    gpu_host: Box, operator: Operator
) -> None:
    operator.serves("gpu1", gpu_host)
    assert operator.ddtree(*DEPLOY, "--service", "plain").returncode == 0
    gpu_host.host.run("docker", "kill", "--signal=STOP", "ddtree-gpu1")
    status = operator.ddtree("status", "gpu1", "--json")
    [service] = json.loads(status.stdout)["gpu1"]["services"]
    assert (service["state"], service["health"]) == ("running", "unhealthy")
    assert service["detail"] == "nothing within the time allowed"
    # It holds its GPU and its port, and is ended all the same.
    assert operator.ddtree("stop", "gpu1").returncode == 0
    assert gpu_host.host.run("docker", "ps", "--quiet") == ""


@pytest.mark.parametrize("fault", ["dies", "hangs"])
def test_the_old_service_runs_again_after_a_new_one_that_fails(
    gpu_host: Box, operator: Operator, fault: str
) -> None:
    operator.serves("gpu1", gpu_host, ready_timeout_s=60)
    assert operator.ddtree(*DEPLOY).returncode == 0
    before = gpu_host.host.run("docker", "ps", "--no-trunc", "-q")
    operator.serves(
        "gpu1", gpu_host, container=f"image: {images.fault(fault)}\n", ready_timeout_s=15
    )
    assert operator.ddtree(*DEPLOY).returncode == 6
    assert gpu_host.host.run("docker", "ps", "--no-trunc", "-q") == before
    [service] = json.loads(operator.ddtree("status", "gpu1", "--json").stdout)["gpu1"]["services"]
    assert service["health"] == "healthy"
