"""Services in containers of real Docker hosts: what is started, what is refused, what is shown."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

from tests.rig import gpus, images
from tests.rig.conftest import Box, Operator
from tests.rig.rig import RigHost

NAME = "ddtree-gpu1"
DEPLOY = ("deploy", "gpu1", "--gpu", "1")


@pytest.fixture
def gpu1(gpu_host: Box, operator: Operator) -> Box:
    operator.serves("gpu1", gpu_host)
    return gpu_host


def done(operator: Operator, *words: str) -> str:
    """Data of a command that must succeed."""
    result = operator.ddtree(*words)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def refused(operator: Operator, *words: str, exit_code: int = 1) -> str:
    result = operator.ddtree(*words)
    assert result.returncode == exit_code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


def services(operator: Operator, host: str = "gpu1") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(done(operator, "status", host, "--json"))[host][
        "services"
    ]
    return found


def inspected(host: RigHost, name: str = NAME) -> dict[str, Any]:
    [found] = json.loads(host.run("docker", "inspect", name))
    return dict(found)


def foreign(host: RigHost, *options: str, name: str = "theirs") -> str:
    """A container that somebody else runs; its identity."""
    words = ["docker", "run", "-d", f"--name={name}", *options, images.ENGINE]
    return host.run(*words, "python3", "-c", "import time; time.sleep(600)").strip()


def test_a_dry_run_shows_exactly_the_container_that_is_started_then(
    gpu1: Box, operator: Operator
) -> None:
    words = (*DEPLOY, "--budget", "32", "--allow-hybrid-unsafe")
    shown = json.loads(done(operator, *words, "--dry-run", "--json"))["gpu1"]
    assert gpu1.host.run("docker", "ps", "-aq") == ""
    table = done(operator, *words, "--dry-run")
    assert gpus.uuid(1) in table
    assert "/srv/models/lab-pair/target at /srv/models/lab-pair/target, read only" in table
    assert "let Docker start it again when it ends (unless-stopped)" in table

    done(operator, *words)
    runs, plan = inspected(gpu1.host), shown["container"]
    assert runs["Name"] == f"/{plan['name']}"
    assert runs["Image"] == plan["image_digest"]
    assert runs["Config"]["Cmd"] == plan["argv"] == shown["argv"]
    assert {*runs["Config"]["Env"]} >= {f"{k}={v}" for k, v in plan["environment"].items()}
    assert [
        (m["Source"], m["Target"], m.get("ReadOnly", False)) for m in runs["HostConfig"]["Mounts"]
    ] == [(m["source"], m["target"], m["read_only"]) for m in plan["mounts"]]
    assert runs["HostConfig"]["ShmSize"] == plan["shm_bytes"] == 64 << 20
    assert runs["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == [plan["gpu_device"]]
    assert runs["HostConfig"]["PortBindings"] == {
        f"{plan['port']}/tcp": [{"HostIp": plan["bind"], "HostPort": str(plan["port"])}]
    }
    assert runs["HostConfig"]["RestartPolicy"]["Name"] == plan["restart"] == "unless-stopped"


def test_labels_say_on_the_host_what_status_shows(gpu1: Box, operator: Operator) -> None:
    done(operator, *DEPLOY, "--budget", "8")
    labels = inspected(gpu1.host)["Config"]["Labels"]
    [service] = services(operator)
    for key in ("gpu_uuid", "budget", "mode", "image", "image_digest", "patch_set", "deployer",
                "deployed_at", "profile_hash", "spec_hash", "service", "port"):  # fmt: skip
        assert labels[f"dev.ddtree.{key}"] == str(service[key]), key
    assert service["gpu_uuid"] == gpus.uuid(1)
    assert service["image"] == images.PROJECT_IMAGE
    assert service["patch_set"]
    assert service["health"] == "healthy"
    assert service["tunnel"] == "ssh -N -L 30001:127.0.0.1:30001 10.77.21.2"
    assert 0 <= service["uptime_s"] < 120

    # Nothing has changed, so nothing is done; the container is the same one.
    before = inspected(gpu1.host)["Id"]
    again = operator.ddtree(*DEPLOY, "--budget", "8")
    assert "nothing to change" in again.stderr
    assert inspected(gpu1.host)["Id"] == before

    # The tag leads to another image now.
    gpu1.host.run("docker", "tag", images.fault("hangs"), images.PROJECT_IMAGE)
    try:
        plan = json.loads(done(operator, *DEPLOY, "--budget", "8", "-n", "--json"))["gpu1"]
    finally:
        gpu1.host.run("docker", "tag", images.ENGINE, images.PROJECT_IMAGE)
    assert plan["playbook"] == "replace"


def test_a_gpu_is_pinned_by_cdi_where_a_file_of_the_host_names_it(
    cdi_host: Box, operator: Operator
) -> None:
    operator.serves("gpu1", cdi_host)
    done(operator, *DEPLOY)
    assert inspected(cdi_host.host)["HostConfig"]["DeviceRequests"][0]["Driver"] == "cdi"
    seen = cdi_host.host.run("docker", "exec", NAME, "sh", "-c", "ls /dev | grep 'nvidia[0-9]'")
    assert seen.split() == ["nvidia1"]
    assert "by CDI" in done(operator, *DEPLOY, "--budget", "8", "--dry-run")


def test_a_host_behind_a_jump_host_is_served_through_it(
    inner_gpu_host: Box, behind: tuple[RigHost, RigHost, RigHost], operator: Operator
) -> None:
    operator.serves("gpu1", inner_gpu_host)
    operator.configure(f"Host {inner_gpu_host.address}\nProxyJump 10.77.11.2\n")
    operator.knows(("10.77.11.2", behind[0]), (inner_gpu_host.address, inner_gpu_host.host))
    before = [host.logins() for host in (behind[0], inner_gpu_host.host)]
    done(operator, *DEPLOY)
    after = [host.logins() for host in (behind[0], inner_gpu_host.host)]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1]
    assert services(operator)[0]["health"] == "healthy"


def test_a_gpu_on_which_another_container_computes_is_refused_and_another_taken(
    gpu1: Box, operator: Operator
) -> None:
    theirs = foreign(gpu1.host, "--gpus", "device=0")
    said = refused(operator, "deploy", "gpu1", "--gpu", "0")
    assert f"GPU 0 is busy: python3 of {images.USER_ID} (pid " in said
    assert "MiB) in container theirs; choose another with --gpu" in said
    plan = json.loads(done(operator, "deploy", "gpu1", "--dry-run", "--json"))["gpu1"]
    assert plan["container"]["gpu_uuid"] == gpus.uuid(1)
    assert inspected(gpu1.host, "theirs")["Id"] == theirs
    assert inspected(gpu1.host, "theirs")["State"]["Running"]


def test_a_port_that_another_container_publishes_is_refused(gpu1: Box, operator: Operator) -> None:
    foreign(gpu1.host, "-p", "127.0.0.1:30001:9000")
    said = refused(operator, *DEPLOY)
    assert "port 30001 is taken: container theirs, which this toolkit did not start" in said
    said = refused(operator, *DEPLOY, "--port", "22")
    assert "port 22 is taken: another program listens there" in said


def test_a_container_of_somebody_else_is_in_the_way_and_never_touched(
    gpu1: Box, operator: Operator
) -> None:
    # Its image has our labels, and so has it.
    theirs = foreign(gpu1.host, name=NAME)
    said = refused(operator, *DEPLOY)
    assert f"container {NAME}, which this toolkit did not start, has the name" in said
    assert services(operator) == []
    assert "no service is deployed" in refused(operator, "stop", "gpu1", exit_code=2)
    left = inspected(gpu1.host)
    assert (left["Id"], left["State"]["Running"]) == (theirs, True)


def test_an_image_without_the_patch_set_or_that_is_missing_is_refused(
    gpu1: Box, operator: Operator
) -> None:
    operator.serves("gpu1", gpu1, container=f"image: {images.UNPATCHED}\n")
    said = refused(operator, *DEPLOY)
    assert f"ddtree requires the patch set, and image {images.UNPATCHED} has none" in said
    operator.serves("gpu1", gpu1, container="image: nowhere/none:1\n")
    said = refused(operator, *DEPLOY)
    assert "image nowhere/none:1 is not there; `ddtree build gpu1` makes the project's own" in said
    assert gpu1.host.run("docker", "ps", "-aq") == ""


def test_weights_inside_the_package_are_not_on_the_host(gpu1: Box, operator: Operator) -> None:
    operator.declares("models", "lab-pair", "target: lab:target\ndrafter: lab:drafter\n")
    said = refused(operator, *DEPLOY, exit_code=2)
    assert "the weights of model lab-pair are inside the package on this machine" in said


def test_a_log_is_followed_until_ctrl_c_and_is_there_after_a_stop(
    gpu1: Box, operator: Operator
) -> None:
    done(operator, *DEPLOY)
    following = operator.ddtree.start("logs", "gpu1", "-f", "--lines", "1")
    assert following.stdout is not None
    first = following.stdout.readline()
    assert first
    # It is still there and shows what comes.
    time.sleep(1)
    assert following.poll() is None
    services(operator)
    assert "/health_generate" in following.stdout.readline()
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=20)
    assert following.returncode == 130

    last = done(operator, "logs", "gpu1", "--lines", "3").splitlines()
    assert len(last) == 3
    done(operator, "stop", "gpu1")
    assert last[-1] in done(operator, "logs", "gpu1", "--gpu", "1")
    assert services(operator) == []
    [kept] = gpu1.host.run("docker", "ps", "-a", "--format", "{{.Names}}").split()
    assert kept.startswith(f"{NAME}-kept-")


def test_a_log_shows_what_was_written_and_nothing_that_a_terminal_would_obey(
    gpu1: Box, operator: Operator
) -> None:
    done(operator, *DEPLOY, "--service", "plain")
    written = [
        b"\x1b[31m\xe6\xa8\xa1\xe5\x9e\x8b\x1b[0m \xf0\x9f\x9a\xab\n",  # colours, other alphabets
        b"\x1b]0;title\x07\x1b[2J\x1b[Hhome\n",  # a title, a screen that is cleared
        b"half \xff\xfe a character \xe6\n",  # no UTF-8
        b"\r 10%|#   |\r100%|####|\n",
    ]
    shell = 'for line in "$@"; do printf "$line" >/proc/1/fd/1; done'
    octal = ["".join(f"\\{byte:03o}" for byte in line) for line in written]
    gpu1.host.run("docker", "exec", NAME, "sh", "-c", shell, "sh", *octal)
    lines = done(operator, "logs", "gpu1", "--lines", str(len(written))).splitlines()
    assert lines == ["模型 🚫", "home", "half \ufffd\ufffd a character \ufffd", "100%|####|"]
