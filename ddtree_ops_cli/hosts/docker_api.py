"""Docker's own SDK over the one SSH connection of a host.

Its HTTP runs through channels of `docker system dial-stdio`, as the Docker command line does it:
the host's engine is reached with the rights of the login and with no second SSH client.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import requests
import urllib3
from docker.errors import APIError, DockerException
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

import docker

from ..errors import DdtreeError
from . import container_engine
from .clock import THIS, Clock
from .probe import printable

if TYPE_CHECKING:
    from .connection import Connection
    from .link import Link

_DIAL = "docker system dial-stdio"
_BASE = "http://docker:2375"  # a name that the SDK wants; it is never resolved
_OLDEST = "1.41"
"""Docker 20.10; the version that is spoken is asked for first."""
_CHANNELS = 2
"""At once: one may follow a log for hours while the other asks."""
_TIMEOUT_S = 60.0
_LAST_WORDS_S = 2.0
_PACKET = 1 << 15


class DockerApi(docker.APIClient):
    """The SDK's low-level client, on a host."""

    def __init__(self, connection: Connection) -> None:
        """One round trip, for the version. Raises what `asked` raises."""
        super().__init__(_BASE, version=_OLDEST, timeout=int(_TIMEOUT_S))
        self.where = f"host {connection.name}"
        self.clock = THIS
        """The host's, by the date of its last answer."""
        # No proxy and no password of this machine is for the host.
        self.trust_env = False
        self.mount(_BASE, _Adapter(connection))
        self.hooks["response"].append(self._read_clock)
        with self.asked("say its version"):
            self._version = str(self.version(api_version=False)["ApiVersion"])

    # The types of the SDK leave these two out.

    def created(self, body: dict[str, Any], name: str) -> str:
        """Create a container; its identity."""
        create: Any = self.create_container_from_config
        return str(create(body, name)["Id"])

    def image(self, reference: str) -> dict[str, Any]:
        inspect: Any = self.inspect_image
        found: dict[str, Any] = inspect(reference)
        return found

    @contextmanager
    def asked(self, to: str) -> Iterator[None]:
        """Every way in which the body's requests fail becomes one line.

        `to` completes the sentence "Docker was asked to ...". Raises HostUnreachable for a link
        that is cut, DdtreeError otherwise; its cause is the SDK's own error.
        """
        try:
            yield
        except APIError as error:
            said = printable(" ".join(str(error.explanation or error).split()))
            raise DdtreeError(f"Docker refuses to {to}: {said}", where=self.where) from error
        except (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError) as error:
            raise DdtreeError(
                f"Docker was asked to {to} and gave no answer within {_TIMEOUT_S:g} s",
                where=self.where,
                mend="see `journalctl -u docker` there, and how busy its disk is",
            ) from error
        except (
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            DockerException,
            OSError,
        ) as error:
            raise DdtreeError(
                f"Docker was asked to {to} and broke off",
                where=self.where,
                mend="it may have been stopped or restarted: see `journalctl -u docker` there",
            ) from error

    def _read_clock(self, response: requests.Response, *_: Any, **__: Any) -> None:
        if date := response.headers.get("Date"):
            # The header has no fractions: the middle of its second is the best guess.
            said, waited = parsedate_to_datetime(date).timestamp() + 0.5, response.elapsed
            answered = time.time() - waited.total_seconds() / 2
            self.clock = Clock(said - answered, 0.5 + waited.total_seconds() / 2)


class _Adapter(HTTPAdapter):
    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._pool = _Pool(connection)

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> HTTPConnectionPool:
        return self._pool

    def close(self) -> None:
        super().close()
        self._pool.close()


class _Pool(HTTPConnectionPool):
    def __init__(self, connection: Connection) -> None:
        super().__init__("docker", maxsize=_CHANNELS, block=True)
        self._connection = connection

    def _new_conn(self) -> HTTPConnection:
        return _Dialled(self._connection)


class _Dialled(HTTPConnection):
    """HTTP through a channel."""

    def __init__(self, connection: Connection) -> None:
        super().__init__("docker")
        self._connection = connection

    def connect(self) -> None:
        stack = ExitStack()
        channel, link = stack.enter_context(self._connection.channel())
        try:
            link.guarded(lambda: channel.exec_command(_DIAL), "before Docker was asked")
        except BaseException:
            stack.close()
            raise
        where = f"host {self._connection.name}"
        self.sock = ChannelSocket(channel, link, where, stack.close)

    @property
    def is_connected(self) -> bool:
        sock: Any = self.sock
        return sock is not None and sock.usable


class ChannelSocket:
    """As much of a socket as HTTP needs; it is closed when it and all its files are."""

    def __init__(self, channel: Any, link: Link, where: str, on_close: Callable[[], None]) -> None:
        self._channel = channel
        self._link = link
        self._where = where
        self._on_close = on_close
        self._open = 1
        self._closed = False
        self._heard = False

    @property
    def usable(self) -> bool:
        """Whether another request may be sent; what came unasked, or an end, forbids it."""
        channel = self._channel
        quiet = not (channel.closed or channel.eof_received or channel.recv_ready())
        return quiet and self._link.alive

    def makefile(self, mode: str = "r", buffering: int = -1) -> io.BufferedReader:
        assert mode == "rb", "HTTP reads bytes"
        self._open += 1
        return io.BufferedReader(_Reading(self), 1 << 16)

    def recv(self, size: int) -> bytes:
        data: bytes = self._channel.recv(size)
        if not data:
            self._ended()
        self._heard = True
        return data

    def sendall(self, data: bytes) -> None:
        # paramiko's own sendall copies all that is left for each packet.
        left = memoryview(data).cast("B")
        try:
            while left:
                left = left[self._channel.send(bytes(left[:_PACKET])) :]
        except TimeoutError:
            raise
        except OSError:
            self._ended()
            raise

    def settimeout(self, seconds: float | None) -> None:
        self._channel.settimeout(seconds)

    def gettimeout(self) -> float | None:
        seconds: float | None = self._channel.gettimeout()
        return seconds

    def shutdown(self, how: int) -> None:
        """SHUT_WR is a half-close: the other side sees the end and may go on answering."""
        if how in (socket.SHUT_WR, socket.SHUT_RDWR):
            self._channel.shutdown_write()
        if how in (socket.SHUT_RD, socket.SHUT_RDWR):
            self._channel.shutdown_read()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.release()

    def release(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._on_close()

    def _ended(self) -> None:
        """Why there is nothing to read, if that was not to be expected."""
        if not self._link.alive:
            raise self._link.cut("while Docker was asked", running=True)
        if self._heard:
            return
        self._channel.status_event.wait(_LAST_WORDS_S)
        said = bytearray()
        while self._channel.recv_stderr_ready():
            said += self._channel.recv_stderr(1 << 14)
        text = printable(said.decode(errors="replace"))
        reason = container_engine.failure(self._channel.exit_status, text)
        raise DdtreeError(reason.what, where=self._where, mend=reason.mend)


class _Reading(io.RawIOBase):
    """What http.client and the SDK read from; both look for `_sock` and the time-outs here."""

    def __init__(self, sock: ChannelSocket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._sock.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def settimeout(self, seconds: float | None) -> None:
        self._sock.settimeout(seconds)

    def gettimeout(self) -> float | None:
        return self._sock.gettimeout()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._sock.release()
