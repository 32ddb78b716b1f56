"""A port of a host, brought to this machine through the host's one SSH connection."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

from ..errors import DdtreeError

if TYPE_CHECKING:
    from .connection import Connection

_CHUNK = 1 << 16
_RESET = struct.pack("ii", 1, 0)


class Forward:
    """Listens on loopback here, on a port of the kernel's choice, until it is closed.

    A connection that the host does not take is reset, as the host itself would do it.
    """

    def __init__(self, connection: Connection, address: str, port: int) -> None:
        self._connection = connection
        self._there = (address, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        name = f"forward to {connection.name}:{port}"
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def close(self) -> None:
        # Wakes the thread that waits in accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with near:
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                far = self._connection.tunnel(*self._there)
            except DdtreeError:
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                return
            back = threading.Thread(target=_pour, args=(far, near), daemon=True)
            back.start()
            _pour(near, far)
            back.join()
            far.close()


def _pour(source: Any, sink: Any) -> None:
    """Until the source ends; its end is passed on, and the other direction goes on."""
    with contextlib.suppress(OSError, EOFError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    with contextlib.suppress(OSError, EOFError):
        sink.shutdown(socket.SHUT_WR)
