"""Rollouts on real hosts: the lock is the connection's, and what is broken off can be mended."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from tests.rig import images
from tests.rig.conftest import Box, Operator
from tests.rig.rig import Rig
from tests.rollout.broken_off import (
    BEFORE,
    COMMAND,
    cells,
    ended,
    held,
    mended,
    on,
    services,
    tell,
)

GPU = 1
FOREIGN = "somebodys-job"


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


def begin(operator: Operator, playbook: str) -> list[tuple[int, str]]:
    for words in BEFORE[playbook]:
        tell(operator.ddtree, *on("ct", words, GPU))
    return services(operator.ddtree, "ct")


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


@pytest.mark.parametrize(("playbook", "step"), cells("start-service"))
def test_a_killed_command_frees_its_lock_and_the_next_one_mends_it(
    ct: Operator, playbook: str, step: str
) -> None:
    begin(ct, playbook)
    with held(ct.ddtree, step, "after", on("ct", COMMAND[playbook], GPU)) as process:
        process.kill()
        ended(process)
    [run] = tell(ct.ddtree, "status", "ct")["ct"]["unfinished"]
    assert run["last"] == f"{step} begin"
    mended(ct.ddtree, "ct", GPU)


@pytest.mark.parametrize(("playbook", "step"), cells("wait-ready"))
def test_ctrl_c_brings_back_what_was_there(ct: Operator, playbook: str, step: str) -> None:
    before = begin(ct, playbook)
    with held(ct.ddtree, step, "after", on("ct", COMMAND[playbook], GPU)) as process:
        process.send_signal(signal.SIGINT)
        code, err = ended(process)
    assert code == 130, err
    assert services(ct.ddtree, "ct") == before
    mended(ct.ddtree, "ct", GPU)


@pytest.mark.parametrize(("playbook", "step"), cells("start-service"))
def test_a_link_that_comes_back_lets_the_command_undo_what_it_did(
    ct: Operator, gpu_host: Box, rig: Rig, playbook: str, step: str
) -> None:
    before = begin(ct, playbook)
    with held(ct.ddtree, step, "before", on("ct", COMMAND[playbook], GPU)) as process:
        rig.plug(gpu_host.cable, up=False)
        time.sleep(4)  # longer than the keep-alives that this operator's configuration allows
    time.sleep(2)
    rig.plug(gpu_host.cable, up=True)
    code, err = ended(process)
    assert code == 4, err
    assert services(ct.ddtree, "ct") == before
    assert tell(ct.ddtree, "history", "ct")[-1]["result"] == "failed"
    mended(ct.ddtree, "ct", GPU)


@pytest.mark.parametrize(("playbook", "step"), cells("stop-previous"))
def test_a_link_that_stays_cut_leaves_what_the_next_command_mends(
    ct: Operator, gpu_host: Box, rig: Rig, playbook: str, step: str
) -> None:
    begin(ct, playbook)
    with held(ct.ddtree, step, "before", on("ct", COMMAND[playbook], GPU)) as process:
        rig.plug(gpu_host.cable, up=False)
        time.sleep(4)
    code, err = ended(process)
    rig.plug(gpu_host.cable, up=True)
    assert code == 4, err
    assert "nothing was undone" in err
    mended(ct.ddtree, "ct", GPU)


@pytest.mark.parametrize(("playbook", "step"), cells("wait-ready"))
def test_a_docker_that_dies_in_the_middle_leaves_what_the_next_command_mends(
    ct: Operator, gpu_host: Box, playbook: str, step: str
) -> None:
    begin(ct, playbook)
    with held(ct.ddtree, step, "before", on("ct", COMMAND[playbook], GPU)) as process:
        gpu_host.host.run("sh", "-c", "kill -9 $(cat /run/docker.pid); rm -f /run/docker.pid")
    code, err = ended(process)
    gpu_host.host.start_docker()
    assert code in (0, 1), err
    assert "Traceback" not in err
    assert len([one for one in services(ct.ddtree, "ct") if one[1] == "healthy"]) <= 1
    mended(ct.ddtree, "ct", GPU)


@pytest.mark.parametrize(("playbook", "step"), cells("start-service"))
def test_a_host_that_loses_its_power_comes_back_with_what_one_command_mends(
    ct: Operator, gpu_host: Box, rig: Rig, playbook: str, step: str
) -> None:
    begin(ct, playbook)
    with held(ct.ddtree, step, "after", on("ct", COMMAND[playbook], GPU)) as process:
        gpu_host.host.off()
    code, err = ended(process)
    gpu_host.cable = rig.boot_again(gpu_host.host, None, gpu_host.address.rsplit(".", 1)[0])
    gpu_host.host.await_docker()
    gpu_host.host.run("docker", "start", FOREIGN)
    assert code == 4, err
    [run] = tell(ct.ddtree, "status", "ct")["ct"]["unfinished"]
    assert run["last"] == f"{step} begin"
    mended(ct.ddtree, "ct", GPU)


@pytest.mark.parametrize(("playbook", "step"), cells("start-service"))
def test_a_disk_that_fills_up_in_the_middle_ends_the_run_and_refuses_the_next(
    ct: Operator, gpu_host: Box, playbook: str, step: str
) -> None:
    before = begin(ct, playbook)
    host, disk = gpu_host.host, "/home/ops/.local/state"
    # The state directory becomes a small disk of its own, with what was in it.
    host.run("sh", "-c", f"cp -a {disk}/ddtree /run/saved; mount -t tmpfs -o size=64k full {disk}"
             f"; cp -a /run/saved {disk}/ddtree; rm -r /run/saved")  # fmt: skip
    try:
        with held(ct.ddtree, step, "before", on("ct", COMMAND[playbook], GPU)) as process:
            # A page that has room already would take a line more.
            page = f"head -c $((4096 - $(stat -c %s {disk}/ddtree/audit.jsonl) % 4096)) /dev/zero"
            host.run("sh", "-c", f"{page} | tr '\\0' '\\n' >>{disk}/ddtree/audit.jsonl")
            host.run("sh", "-c", f"cat /dev/zero >{disk}/ddtree/filler", check=False)
        code, err = ended(process)
        assert code == 0, err
        assert "not in the audit log" in err
        refused = ct.ddtree(*on("ct", ("deploy", "--budget", "16"), GPU))
        assert refused.returncode == 1, refused.stderr
        assert "the audit log cannot be written" in refused.stderr
        assert services(ct.ddtree, "ct") != before or playbook == "rollback"
    finally:
        host.run("umount", "-l", disk)
    mended(ct.ddtree, "ct", GPU)


@pytest.mark.parametrize(("playbook", "step"), cells("stop-previous"))
def test_a_second_operator_is_refused_with_the_firsts_name_and_the_first_goes_on(
    ct: Operator, playbook: str, step: str
) -> None:
    begin(ct, playbook)
    with held(ct.ddtree, step, "before", on("ct", COMMAND[playbook], GPU)) as process:
        refused = ct.ddtree(*on("ct", COMMAND["deploy"], GPU))
    code, err = ended(process)
    assert refused.returncode == 5, refused.stderr
    assert f"{COMMAND[playbook][0]} ct, since" in refused.stderr
    assert code == 0, err
    mended(ct.ddtree, "ct", GPU)
