"""Builds and copies that are ended in the middle: nothing half done is left, a repeat works."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from tests.rig.conftest import Box, DockerHosts
from tests.rig.image_base import BASE
from tests.rig.image_site import PATIENCE_S, Site, containers, opened, tags, until
from tests.rig.rig import Rig

TAG, COPIED = "ddtree/sglang:faults", "ddtree/sglang:copied"
SLOW_STEP, SLOW_COMPILE, SLOW_DOCTOR = (
    f"ddtree-rig/base:slow-{what}" for what in ("step", "compile", "doctor")
)
# Each build on it begins with such a step.
_STEP = f"FROM {BASE}\nONBUILD RUN sleep 12\n"


def _late(what: str, seconds: int) -> str:
    """Each Python that has this word on its command line sleeps first."""
    late = f"any('{what}' in word for word in sys.orig_argv)"
    line = f"import sys, time; time.sleep({seconds} if {late} else 0)"
    return f'FROM {BASE}\nRUN echo "{line}" >/usr/local/lib/python3.13/dist-packages/late.pth\n'


End = Literal["Ctrl-C", "kill -9", "cut"]
ENDS: tuple[End, ...] = ("Ctrl-C", "kill -9", "cut")


@pytest.fixture(scope="module")
def site(
    rig: Rig, docker_hosts: DockerHosts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    for site in opened(rig, docker_hosts, tmp_path_factory.mktemp("operator")):
        bases = {
            SLOW_STEP: _STEP,
            SLOW_COMPILE: _late("compileall", 10),
            SLOW_DOCTOR: _late("ddtree-doctor", 15),
        }
        for tag, text in bases.items():
            site.gpu1.host.run("docker", "build", "-q", "-t", tag, "-", stdin=text)
        yield site
        site.gpu1.host.run("docker", "rmi", "-f", *bases)


@pytest.fixture
def plugged(site: Site, rig: Rig) -> Iterator[None]:
    yield
    for box in (site.gpu1, site.gpu2):
        rig.plug(box.cable, up=True)


def ended(process: subprocess.Popen[str], how: End, rig: Rig, box: Box) -> str:
    """End a command so; what it said on stderr. The cable of `box` is back afterwards."""
    if how == "cut":
        rig.plug(box.cable, up=False)
    else:
        process.send_signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGKILL)
    _, said = process.communicate(timeout=PATIENCE_S)
    rig.plug(box.cable, up=True)
    assert process.returncode == {"Ctrl-C": 130, "kill -9": -signal.SIGKILL, "cut": 4}[how], said
    assert "Traceback" not in said
    return said


def log_of(site: Site) -> str:
    files = (site.operator.home / ".local/state/ddtree/builds").glob("build-gpu1-*.log")
    return max(files, key=lambda file: file.stat().st_mtime).read_text()


def repeated(site: Site) -> Any:
    done = site.build(TAG)
    assert done.returncode == 0, done.stderr
    assert len(tags(site.gpu1, TAG)) == 1
    until(lambda: containers(site.gpu1) == [], "no container is left")
    # Its layers stay, so that the next one takes seconds.
    site.gpu1.host.run("docker", "rmi", "--no-prune", TAG)
    return done


@pytest.mark.parametrize("how", ENDS)
def test_a_build_that_is_ended_in_a_step_leaves_no_name_and_no_container(
    site: Site, rig: Rig, plugged: None, how: End
) -> None:
    process = site.operator.ddtree.start(*site.building(TAG, base=SLOW_STEP))
    until(lambda: any("sleep 12" in one for one in containers(site.gpu1)), "the step runs")
    said = ended(process, how, rig, site.gpu1)
    log = log_of(site)
    assert "# Executing 1 build trigger" in log
    if how != "kill -9":
        assert f"host gpu1: {TAG} is as it was; finished steps stay there" in said
        assert "ended by " in log.splitlines()[-1]
    # After a cut the host goes on for a while: it has not heard of it.
    until(lambda: containers(site.gpu1) == [], "no container is left")
    assert tags(site.gpu1, TAG) == []
    repeated(site)


def test_a_build_whose_docker_is_killed_leaves_a_step_that_the_next_one_removes(
    site: Site,
) -> None:
    host = site.gpu1.host
    process = site.operator.ddtree.start(*site.building(TAG, base=SLOW_COMPILE))
    until(lambda: any("compileall" in one for one in containers(site.gpu1)), "the step runs")
    host.run("sh", "-c", "kill -9 $(cat /run/docker.pid)")
    _, said = process.communicate(timeout=PATIENCE_S)
    host.start_docker()
    assert process.returncode == 1
    assert "Docker was asked to build the image and broke off" in said
    running = ["docker", "ps", "-q", "--filter", "status=running"]
    until(lambda: host.run(*running) == "", "the step has ended")
    [left] = [one.split()[0] for one in containers(site.gpu1)]
    assert tags(site.gpu1, TAG) == []
    again = repeated(site)
    assert f"removed container {left} (build step), which an earlier command left" in again.stderr


@pytest.mark.parametrize("how", ENDS)
def test_a_build_that_is_ended_while_the_doctor_looks_leaves_no_name_and_what_is_left_is_told(
    site: Site, rig: Rig, plugged: None, how: End
) -> None:
    process = site.operator.ddtree.start(*site.building(TAG, base=SLOW_DOCTOR))
    until(lambda: any("ddtree-doctor" in one for one in containers(site.gpu1)), "it is there")
    said = ended(process, how, rig, site.gpu1)
    assert tags(site.gpu1, TAG) == []
    if how == "Ctrl-C":
        assert containers(site.gpu1) == []
    else:
        [left] = [one.split()[0] for one in containers(site.gpu1)]
        if how == "cut":
            assert f"container {left} may be left; the next `ddtree build`" in said
        dry = json.loads(site("image", "prune", "gpu1", "--dry-run", "--json").stdout)
        assert [one["name"] for one in dry["containers"]] == [left]
        assert len(containers(site.gpu1)) == 1
    again = repeated(site)
    assert ("which an earlier command left" in again.stderr) == (how != "Ctrl-C")


@pytest.fixture(scope="module")
def built(site: Site) -> str:
    """The identity of an image of gpu1 that is to be copied."""
    done = site.build(COPIED)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["image"])


@pytest.mark.parametrize("how", ENDS)
def test_a_copy_that_is_ended_leaves_nothing_of_it_there_and_a_repeat_works(
    site: Site, built: str, rig: Rig, plugged: None, how: End
) -> None:
    """The cable is that of the host which sends; test_image.py pulls the other's."""
    images = identities(site.gpu2)
    words = ("image", "copy", "gpu1", "gpu2", "--image", COPIED)
    before = received(site.gpu2)
    process = site.operator.ddtree.start(*words)
    until(lambda: received(site.gpu2) > before + 20_000_000, "the copy is under way")
    said = ended(process, how, rig, site.gpu1)
    if how != "kill -9":
        assert "nothing was tagged on gpu2, which keeps none of it; run it again" in said
    until(lambda: unpacking(site.gpu2) == "", "Docker has thrown away what had arrived")
    assert identities(site.gpu2) == images
    done = site(*words, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["identity"] == built
    site.gpu2.host.run("docker", "rmi", COPIED)


def identities(box: Box) -> list[str]:
    """Of all images; Docker lists those of one second in any order."""
    return sorted(box.host.run("docker", "images", "-aq").split())


def received(box: Box) -> int:
    return int(box.host.read("/sys/class/net/eth0/statistics/rx_bytes"))


def unpacking(box: Box) -> str:
    """What Docker keeps while it loads an image."""
    return box.host.run("ls", "/var/lib/docker/tmp")


def test_a_copy_to_a_host_without_space_is_refused_before_anything_is_sent(
    site: Site, built: str
) -> None:
    """A `df` that tells of a full disk stands before the real one."""
    full = "#!/bin/sh\n/usr/bin/df \"$@\" | awk 'NR > 1 { $4 = 1000 } { print }'\n"
    site.gpu2.host.write("/usr/local/bin/df", full, mode="755")
    before = received(site.gpu2)
    try:
        done = site("image", "copy", "gpu1", "gpu2", "--image", COPIED)
    finally:
        site.gpu2.host.run("rm", "/usr/local/bin/df")
    assert done.returncode == 1
    assert "error: host gpu2: /var/lib/docker has 0.0 GiB free for /var/lib/docker; the copy " in (
        done.stderr
    )
    assert received(site.gpu2) - before < 1_000_000
