"""Docker's SDK through the one SSH connection of a host."""

from __future__ import annotations

import io
import os
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ddtree_ops_cli.errors import DdtreeError, HostUnreachable
from ddtree_ops_cli.hosts.connection import Connection
from ddtree_ops_cli.hosts.docker_api import DockerApi
from ddtree_ops_cli.hosts.fleet import each
from tests.rig import images
from tests.rig.conftest import Box, Operator
from tests.rig.rig import Rig

BYTES = os.urandom(20_000_000)


@pytest.fixture
def connection(gpu_host: Box, operator: Operator) -> Iterator[Connection]:
    host = operator.profile("gpu1", gpu_host.address)
    operator.knows((gpu_host.address, gpu_host.host))
    with operator.connections() as connections:
        yield connections.to(host)


@pytest.fixture
def api(connection: Connection) -> Iterator[DockerApi]:
    with DockerApi(connection) as api:
        yield api


def container(api: DockerApi, *words: str, **more: Any) -> str:
    body = {"Image": images.ENGINE, "Cmd": list(words), "HostConfig": {}, **more}
    return api.created(body, "")


def follow(api: DockerApi, there: str, then: Callable[[], None]) -> None:
    """Read a log to its end, and do something once it has begun."""
    for _ in api.logs(there, stream=True, follow=True):
        then()


def test_everything_goes_through_one_login_and_two_channels(
    gpu_host: Box, connection: Connection
) -> None:
    before = gpu_host.host.logins()
    with DockerApi(connection) as api:
        asked = {str(number): api for number in range(8)}
        found = each(asked, lambda one: one.containers(all=True))
        assert list(found.values()) == [[]] * 8
        dialled = gpu_host.host.run("pgrep", "-fc", "docker system dial-stdio")
    assert gpu_host.host.logins() - before == 1
    # Each is a shell of sshd's and the command itself.
    assert int(dialled) <= 4


def test_large_streams_arrive_whole_in_both_directions(api: DockerApi) -> None:
    there = container(api, "true")
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        entry = tarfile.TarInfo("big")
        entry.size = len(BYTES)
        archive.addfile(entry, io.BytesIO(BYTES))
    assert api.put_archive(there, "/tmp", tar.getvalue())
    stream, _ = api.get_archive(there, "/tmp/big")
    back = tarfile.open(fileobj=io.BytesIO(b"".join(stream)))  # noqa: SIM115 - in memory
    file = back.extractfile("big")
    assert file is not None
    assert file.read() == BYTES


def test_the_end_of_what_is_sent_is_told_while_the_answer_still_comes(api: DockerApi) -> None:
    count = "import sys; print(len(sys.stdin.buffer.read()), flush=True)"
    there = container(api, "python3", "-c", count, OpenStdin=True, StdinOnce=True)
    attached = api.attach_socket(there, params={"stdin": 1, "stdout": 1, "stream": 1})
    attached.settimeout(20)
    api.start(there)
    attached._sock.sendall(BYTES[:3_000_000])
    attached._sock.shutdown(socket.SHUT_WR)
    answer = b"".join(iter(lambda: attached.read(4096), b""))
    assert answer.endswith(b"3000000\n")
    attached._response.close()


def test_a_daemon_that_is_restarted_between_two_questions_is_asked_anew(
    gpu_host: Box, api: DockerApi
) -> None:
    assert api.containers() == []
    gpu_host.host.stop_docker()
    gpu_host.host.start_docker()
    assert api.containers() == []


def test_a_daemon_that_ends_while_it_answers_is_one_line(gpu_host: Box, api: DockerApi) -> None:
    there = container(api, "python3", "-c", "import time; time.sleep(60)")
    api.start(there)
    end = threading.Timer(0.5, gpu_host.host.run, ("sh", "-c", "kill -9 $(cat /run/docker.pid)"))
    end.start()
    try:
        said = r"host gpu1: Docker was asked to wait for a container and broke off; it may have"
        with pytest.raises(DdtreeError, match=said), api.asked("wait for a container"):
            api.wait(there)
        with pytest.raises(DdtreeError, match="Docker is not running"):
            api.containers()
    finally:
        end.join()
        gpu_host.host.run("rm", "-f", "/run/docker.pid")
        gpu_host.host.start_docker()


def test_a_link_that_is_cut_while_docker_answers_is_noticed(
    rig: Rig, gpu_host: Box, api: DockerApi
) -> None:
    there = container(api, "python3", "-uc", "import time; print(1); time.sleep(60)")
    api.start(there)
    begin = time.monotonic()
    try:
        with (
            pytest.raises(HostUnreachable, match="was cut while Docker was asked"),
            api.asked("show a log"),
        ):
            follow(api, there, lambda: rig.plug(gpu_host.cable, up=False))
    finally:
        rig.plug(gpu_host.cable, up=True)
    assert time.monotonic() - begin < 20


def test_a_user_without_docker_rights_and_a_host_without_docker(
    gpu_host: Box, operator: Operator, connection: Connection
) -> None:
    guest = operator.profile("guest", gpu_host.address, "user: guest\n")
    says = r"this user may not use Docker; .*usermod -aG"
    with operator.connections() as connections, pytest.raises(DdtreeError, match=says):
        DockerApi(connections.to(guest))
    gpu_host.host.run("mv", "/usr/bin/docker", "/root/docker")
    try:
        with pytest.raises(DdtreeError, match=r"Docker is not installed"):
            DockerApi(connection)
    finally:
        gpu_host.host.run("mv", "/root/docker", "/usr/bin/docker")


def test_an_error_of_docker_is_its_words_on_one_line(api: DockerApi) -> None:
    with pytest.raises(DdtreeError) as caught, api.asked("show a container"):
        api.inspect_container("nothing")
    assert str(caught.value) == (
        "host gpu1: Docker refuses to show a container: No such container: nothing"
    )


def test_the_hosts_clock_is_read_from_its_answers(api: DockerApi) -> None:
    assert abs(api.clock.offset_s) < 1 + api.clock.uncertainty_s
