"""The story of a GPU on a real host; test_rollout_faults.py breaks rollouts off there."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.rig import images
from tests.rig.conftest import Box, Operator
from tests.rig.rollout_stage import FOREIGN, GPU
from tests.rollout.broken_off import on, services, tell


@pytest.fixture
def ct(operator: Operator, gpu_host: Box) -> Iterator[Operator]:
    """An operator with the host `ct`, on which somebody else runs a container too."""
    operator.serves("ct", gpu_host)
    gpu_host.host.run(
        "docker", "run", "-d", "--name", FOREIGN, "--network=none", "--entrypoint", "sleep",
        images.ENGINE, "3600",
    )  # fmt: skip
    yield operator
    names = gpu_host.host.run("docker", "ps", "--format", "{{.Names}}").split()
    assert FOREIGN in names


def test_another_budget_a_failure_a_rollback_a_prune_and_the_history_of_it_all(
    ct: Operator, gpu_host: Box
) -> None:
    ddtree = ct.ddtree
    tell(ddtree, *on("ct", ("deploy", "--budget", "8"), GPU))
    tell(ddtree, *on("ct", ("deploy", "--budget", "12"), GPU))
    ct.serves("ct", gpu_host, ready_timeout_s=1)
    failed = ddtree(*on("ct", ("deploy", "--budget", "16"), GPU))
    ct.serves("ct", gpu_host)
    assert failed.returncode == 6, failed.stderr
    assert "not ready after" in failed.stderr
    deadline = time.monotonic() + 90
    while services(ddtree, "ct") != [(12, "healthy")]:
        assert time.monotonic() < deadline
    tell(ddtree, *on("ct", ("rollback",), GPU))
    assert services(ddtree, "ct") == [(8, "healthy")]
    pruned = tell(ddtree, "prune", "ct", "--older-than", "0", "--latest-too")
    assert [service["budget"] for service in pruned["forgotten"]] == [12]
    names = gpu_host.host.run("docker", "ps", "-a", "--format", "{{.Names}}").split()
    assert sorted(names) == [f"ddtree-gpu{GPU}", FOREIGN]
    told = [(run["playbook"], run["result"]) for run in tell(ddtree, "history", "ct")]
    assert told == [
        ("deploy", "done"),
        ("replace", "done"),
        ("replace", "failed"),
        ("rollback", "done"),
        ("prune", "done"),
    ]
