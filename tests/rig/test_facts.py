"""`ddtree hosts facts` and `ddtree status` on real hosts, healthy and broken."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddtree_ops_cli.hosts.facts import HostFacts, read_facts
from ddtree_ops_cli.hosts.unknown import Unknown
from tests.rig import gpus as table
from tests.rig import images
from tests.rig.conftest import Box, Operator

GPUS = (Path(__file__).parent / "gpus.json").read_text()
HOOK = "/usr/bin/nvidia-container-runtime-hook"


@pytest.fixture
def gpu2(gpu_host: Box, operator: Operator) -> Iterator[Box]:
    """A host with Docker and two GPUs, one of them busy, known to the operator as gpu2."""
    operator.profile("gpu2", gpu_host.address)
    operator.knows((gpu_host.address, gpu_host.host))
    usual = gpu_host.host.read("/etc/rig-gpus.json")
    gpu_host.host.write("/etc/rig-gpus.json", GPUS)
    yield gpu_host
    gpu_host.host.write("/etc/rig-gpus.json", usual)
    gpu_host.host.run("rm", "-f", "/usr/local/bin/date")


def facts(operator: Operator) -> dict[str, Any]:
    done = operator.ddtree("hosts", "facts", "gpu2", "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_healthy_host_is_read_whole_in_one_login(gpu2: Box, operator: Operator) -> None:
    before = gpu2.host.logins()
    found = facts(operator)
    assert gpu2.host.logins() - before == 1
    assert found["unknown"] == {}
    read = found["facts"]
    assert read["system"]["hostname"] == "rig1"
    assert read["system"]["release"].startswith("Debian GNU/Linux 13")
    assert abs(read["clock"]["offset_s"]) < 1 + read["clock"]["uncertainty_s"]
    assert {"address": "0.0.0.0", "port": 22} in read["ports"]
    assert read["engine"]["version"].startswith("26.1.5")
    assert read["engine"]["gpu_access"] == ["gpus"]
    assert read["memory"]["total_bytes"] > read["memory"]["available_bytes"] > 0
    assert [disk["mount"] for disk in read["disks"]] == ["/", "/var/lib/docker"]
    first, second = read["gpus"]
    assert first["memory_total_mib"] == 97887
    assert (first["mig"], first["ecc"], second["mig"], second["ecc"]) == (False, True, None, False)
    assert second["holders"] == [
        {
            "pid": 1,
            "user": "root",
            "name": "sglang::scheduler, tp 0",
            "memory_mib": 71200,
            "container": None,
        }
    ]


def test_the_table_says_the_same_to_people(gpu2: Box, operator: Operator) -> None:
    done = operator.ddtree("hosts", "facts", "gpu2")
    assert done.returncode == 0
    assert "Debian GNU/Linux 13" in done.stdout
    assert "GPUs by --gpus" in done.stdout
    assert "of root (pid 1) 71200 MiB" in done.stdout


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("9", "the NVIDIA driver is not loaded (exit code 9: NVIDIA-SMI has failed"),
        ("6", "nvidia-smi finds no GPU (exit code 6: No devices were found)"),
        ("15", "a GPU has fallen off the bus (exit code 15: Unable to determine the device handle"),
        ("18", "driver and library of NVIDIA differ in version"),
        ("4", "this user may not ask for the GPUs"),
    ],
)
def test_each_failure_of_nvidia_smi_is_named_and_hides_nothing_else(
    gpu2: Box, operator: Operator, fault: str, what: str
) -> None:
    gpu2.host.write("/etc/rig-nvidia-smi", fault)
    found = facts(operator)
    assert list(found["unknown"]) == ["gpus"]
    assert found["unknown"]["gpus"]["what"].startswith(what)
    assert found["unknown"]["gpus"]["mend"]
    assert found["facts"]["engine"]["version"]


def test_nvidia_smi_is_missing(gpu2: Box, operator: Operator) -> None:
    gpu2.host.run("mv", "/usr/bin/nvidia-smi", "/root/nvidia-smi")
    try:
        found = facts(operator)
    finally:
        gpu2.host.run("mv", "/root/nvidia-smi", "/usr/bin/nvidia-smi")
    assert found["unknown"]["gpus"]["what"] == "nvidia-smi is not installed (exit code 127)"


def test_nvidia_smi_hangs(gpu2: Box, operator: Operator) -> None:
    gpu2.host.write("/etc/rig-nvidia-smi", "hang")
    begin = time.monotonic()
    found = facts(operator)
    assert time.monotonic() - begin < 30
    assert list(found["unknown"]) == ["gpus"]
    assert found["unknown"]["gpus"]["what"].startswith("nvidia-smi hangs")


def test_what_cannot_even_be_killed_takes_no_other_fact_with_it(
    gpu2: Box, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in the kernel's uninterruptible sleep outlives `timeout`."""
    monkeypatch.setattr("ddtree_ops_cli.hosts.facts._TIMEOUT_S", 3.0)
    gpu2.host.write("/usr/local/bin/timeout", '#!/bin/sh\nshift 3\nexec "$@"\n', "755")
    gpu2.host.write("/etc/rig-nvidia-smi", "hang")
    try:
        with operator.connections() as connections:
            host = operator.profile("gpu2", gpu2.address)
            found: HostFacts = read_facts(connections.to(host))
    finally:
        gpu2.host.run("rm", "/usr/local/bin/timeout")
    assert list(found.unknown) == ["gpus"]
    assert isinstance(found.gpus, Unknown)
    assert found.gpus.what.startswith("nvidia-smi hangs")


def test_a_clock_that_is_off_is_said(gpu2: Box, operator: Operator) -> None:
    gpu2.host.write(
        "/usr/local/bin/date",
        "#!/bin/sh\nexec /usr/bin/date -d '+90 seconds' \"$@\"\n",
        "755",
    )
    clock = facts(operator)["facts"]["clock"]
    assert abs(clock["offset_s"] - 90) < 1 + clock["uncertainty_s"]
    table = operator.ddtree("hosts", "facts", "gpu2").stdout
    assert "s ahead of this machine's; set it right" in table


def test_a_user_without_docker_rights(gpu2: Box, operator: Operator) -> None:
    operator.profile("gpu2", gpu2.address, "user: guest\n")
    found = facts(operator)
    assert list(found["unknown"]) == ["engine"]
    assert found["unknown"]["engine"]["what"] == "this user may not use Docker"
    assert "usermod -aG docker" in found["unknown"]["engine"]["mend"]


def test_docker_is_down_while_its_containers_go_on(gpu2: Box, operator: Operator) -> None:
    gpu2.host.run("docker", "run", "--detach", "--network=none", "--gpus=device=0", images.ENGINE,
                  "sleep", "600")  # fmt: skip
    gpu2.host.stop_docker()
    try:
        found = facts(operator)
    finally:
        gpu2.host.start_docker()
    assert list(found["unknown"]) == ["engine"]
    assert found["unknown"]["engine"]["what"] == "Docker is not running"
    assert [holder["name"] for holder in found["facts"]["gpus"][0]["holders"]] == ["sleep"]


def test_a_host_without_docker_and_one_where_it_never_ran(gpu1: Box, operator: Operator) -> None:
    operator.profile("gpu2", gpu1.address)
    operator.knows((gpu1.address, gpu1.host))
    gpu1.host.write("/etc/rig-gpus.json", "[]")
    assert facts(operator)["unknown"]["engine"]["what"] == "Docker is not running"
    gpu1.host.run("mv", "/usr/bin/docker", "/root/docker")
    try:
        assert facts(operator)["unknown"]["engine"]["what"] == "Docker is not installed"
    finally:
        gpu1.host.run("mv", "/root/docker", "/usr/bin/docker")


@pytest.mark.parametrize("given", ["--gpus=device=3", "--device=nvidia.com/gpu=3"])
def test_a_container_that_holds_a_gpu_is_found(
    request: pytest.FixtureRequest, operator: Operator, given: str
) -> None:
    by_cdi = "nvidia.com" in given
    box: Box = request.getfixturevalue("cdi_host" if by_cdi else "gpu_host")
    operator.profile("gpu2", box.address)
    operator.knows((box.address, box.host))
    box.host.run(
        "docker", "run", "--detach", "--network=none", given, images.ENGINE, "sleep", "600"
    )
    found = facts(operator)["facts"]
    assert found["engine"]["gpu_access"] == (["cdi"] if by_cdi else ["gpus"])
    assert [len(gpu["holders"]) for gpu in found["gpus"]] == [0, 0, 0, 1]
    (holder,) = found["gpus"][3]["holders"]
    # The container's user has no name on the host.
    assert (holder["name"], holder["user"]) == ("sleep", str(images.USER_ID))


def test_a_host_may_know_both_ways_of_giving_gpus_or_none(gpu2: Box, operator: Operator) -> None:
    gpu2.host.run("mkdir", "-p", "/etc/cdi")
    gpu2.host.write("/etc/cdi/nvidia.yaml", table.cdi(2))
    try:
        assert facts(operator)["facts"]["engine"]["gpu_access"] == ["gpus", "cdi"]
        gpu2.host.run("rm", "/etc/cdi/nvidia.yaml")
        gpu2.host.run("mv", HOOK, "/root/hook")
        assert facts(operator)["facts"]["engine"]["gpu_access"] == []
        shown = operator.ddtree("hosts", "facts", "gpu2").stdout
        assert "no GPUs for containers; install the NVIDIA container toolkit" in shown
    finally:
        gpu2.host.run("rm", "-rf", "/etc/cdi")
        gpu2.host.run("sh", "-c", f"[ ! -e /root/hook ] || mv /root/hook {HOOK}")


def test_a_host_with_a_forced_command_is_one_line(gpu1: Box, operator: Operator) -> None:
    gpu1.host.restart_sshd("ForceCommand echo no shell for you\n")
    operator.profile("gpu1", gpu1.address)
    operator.knows((gpu1.address, gpu1.host))
    done = operator.ddtree("hosts", "facts", "gpu1")
    assert done.returncode == 1
    assert "its shell does not run a script: no shell for you" in done.stderr


def test_status_of_a_host_without_services(gpu2: Box, operator: Operator) -> None:
    done = operator.ddtree("status", "gpu2")
    assert done.returncode == 0, done.stderr
    assert "stopped: nothing is deployed" in done.stdout
    document = json.loads(operator.ddtree("status", "gpu2", "--json").stdout)
    assert abs(document["gpu2"].pop("clock_offset_s")) < 5
    assert document["gpu2"] == {"services": [], "unfinished": []}


def test_status_of_an_unreachable_host_is_exit_code_4(gpu2: Box, operator: Operator) -> None:
    operator.profile("off", gpu2.address, "port: 29\n")
    done = operator.ddtree("status", "off")
    assert done.returncode == 4
    assert "refuses connections to port 29" in done.stderr
    swept = operator.ddtree("status")
    assert swept.returncode == 7
    assert swept.stdout.count("stopped: nothing is deployed") == 2  # of facts-host and the lab
    assert "unreachable: 10.77.21.2 refuses" in swept.stdout
