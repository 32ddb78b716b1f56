"""A port of a host, brought here through its one SSH connection."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from ddtree_ops_cli.hosts.connection import Connection
from tests.rig.conftest import Box, Operator

# Answers each connection, once its end has come, with what it was sent.
ECHO = """
import socket
server = socket.create_server(("127.0.0.1", 9000))
print("up", flush=True)
while True:
    stream, _ = server.accept()
    with stream:
        got = b"".join(iter(lambda: stream.recv(65536), b""))
        stream.sendall(got)
"""


@pytest.fixture
def connection(gpu1: Box, operator: Operator) -> Iterator[Connection]:
    host = operator.profile("gpu1", gpu1.address)
    operator.knows((gpu1.address, gpu1.host))
    gpu1.host.write("/root/echo.py", ECHO)
    words = "setsid python3 /root/echo.py >/root/echo.log 2>&1 & echo $! >/root/echo.pid"
    gpu1.host.run("sh", "-c", f"{words}; until grep -q up /root/echo.log; do sleep 0.05; done")
    with operator.connections() as connections:
        yield connections.to(host)
    gpu1.host.run("sh", "-c", "kill $(cat /root/echo.pid)")


def echoed(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stream:
        sender = threading.Thread(target=lambda: (stream.sendall(data),
                                                  stream.shutdown(socket.SHUT_WR)))  # fmt: skip
        sender.start()
        back = b"".join(iter(lambda: stream.recv(65536), b""))
        sender.join()
    return back


def test_bytes_come_back_whole_after_a_half_close(gpu1: Box, connection: Connection) -> None:
    before = gpu1.host.logins()
    port = connection.forward("127.0.0.1", 9000)
    data = os.urandom(3_000_000)
    assert echoed(port, data) == data
    assert echoed(port, b"again") == b"again"
    assert connection.forward("127.0.0.1", 9000) == port
    assert gpu1.host.logins() - before == 1


def test_a_port_on_which_the_host_does_not_listen_is_reset(connection: Connection) -> None:
    port = connection.forward("127.0.0.1", 9001)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as stream:
        stream.sendall(b"anybody?")
        with pytest.raises(ConnectionResetError):
            stream.recv(1)


def test_it_ends_with_the_connections(gpu1: Box, operator: Operator) -> None:
    host = operator.profile("gpu1", gpu1.address)
    operator.knows((gpu1.address, gpu1.host))
    with operator.connections() as connections:
        port = connections.to(host).forward("127.0.0.1", 9000)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
