"""One SSH connection to each host, by one policy, reused for everything that is asked of it.

    with Connections() as connections:
        host = connections.to(library.host("ct200"))
        host.run(["docker", "version"]).out

Host keys are strict, jump hosts are connected to once and shared, a command is a list of words
that are quoted for the remote shell here and nowhere else.
"""

from __future__ import annotations

import logging
import select
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import DdtreeError, UsageError
from .dialogue import Dialogue, Ended
from .shell import Completed, OutOfTime, decoded
from .ssh_config import Hop, SshConfig, user_config

if TYPE_CHECKING:
    from types import TracebackType

    from ..profiles.load import Loaded
    from ..profiles.schema import HostProfile
    from .forward import Forward
    from .link import Link

_TICK_S = 0.2
_CLOSING_S = 10.0


class Connections:
    """The open connections of this process: one for each server, jump hosts included.

    Safe for many threads. Leaving the context closes all of them.
    """

    def __init__(self, config: SshConfig | None = None) -> None:
        # Its thread logs errors that are raised here as well; without a handler they would be
        # printed.
        logging.getLogger("paramiko").addHandler(logging.NullHandler())
        self._config = config
        self._guard = threading.Lock()
        self._locks: dict[Hop, threading.Lock] = {}
        self._links: dict[Hop, Link] = {}
        self._forwards: dict[tuple[Hop, str, int], Forward] = {}
        self._ends: list[Callable[[], None]] = []

    def to(self, host: Loaded[HostProfile]) -> Connection:
        """Nothing is opened before the first command."""
        return Connection(host.name, self.route(host), self)

    def route(self, host: Loaded[HostProfile]) -> Hop:
        """The server of a host, and those on the way to it.

        Raises UsageError for this machine, ProfileError for an SSH configuration that cannot be
        read.
        """
        if host.value.address is None:
            raise UsageError(f"host {host.name} is this machine; it is not reached over SSH")
        with self._guard:
            self._config = self._config or user_config()
        return self._config.route(host.value)

    def link(self, hop: Hop, host: str) -> Link:
        """The open connection to a server, opened now if there is none or it was cut.

        Raises HostUnreachable with the cause.
        """
        from .link import open_link

        with self._guard:
            lock = self._locks.setdefault(hop, threading.Lock())
        with lock:
            found = self._links.get(hop)
            if found is None or not found.alive:
                if found is not None:
                    found.close()
                via = self.link(hop.via, host) if hop.via else None
                found = self._links[hop] = open_link(hop, via, host=host)
            return found

    def forward(self, connection: Connection, address: str, port: int) -> int:
        """The port of this machine that leads to one of a host, as long as this is open."""
        from .forward import Forward

        with self._guard:
            key = (connection.hop, address, port)
            if key not in self._forwards:
                self._forwards[key] = Forward(connection, address, port)
            return self._forwards[key].port

    def at_close(self, end: Callable[[], None]) -> None:
        """Call `end` before the connections are closed."""
        self._ends.append(end)

    def close(self) -> None:
        for forward in self._forwards.values():
            forward.close()
        self._forwards.clear()
        for end in self._ends:
            end()
        self._ends.clear()
        # The farther end of a chain first.
        for hop in sorted(self._links, key=lambda hop: -len(hop.chain)):
            self._links[hop].close()
        self._links.clear()

    def __enter__(self) -> Connections:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Connection:
    """A host that commands run on."""

    def __init__(self, name: str, hop: Hop, connections: Connections) -> None:
        self.name = name
        self.hop = hop
        self._connections = connections

    def open(self) -> None:
        """Connect and log in, if that is not done. Raises HostUnreachable with the cause."""
        self._connections.link(self.hop, self.name)

    def run(self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: str = "") -> Completed:
        """Run a command to its end; an exit code that is not 0 is the caller's to judge.

        Raises HostUnreachable if the host is not reached or the link is cut meanwhile, and
        OutOfTime if the command takes longer than `timeout_s`.
        """
        command = shlex.join(argv)
        deadline = time.monotonic() + timeout_s
        with self.channel() as (channel, link):
            began = time.time()
            link.guarded(lambda: channel.exec_command(command), f"before `{argv[0]}` ran")
            return self._finish(channel, link, tuple(argv), stdin, began, deadline)

    @contextmanager
    def converse(self, argv: Sequence[str]) -> Iterator[Dialogue]:
        """A command that is talked with; it ends with this connection.

        Raises HostUnreachable if the link is cut, and Ended if the command is gone.
        """
        command = shlex.join(argv)
        with self.channel() as (channel, link):
            link.guarded(lambda: channel.exec_command(command), f"before `{argv[0]}` ran")

            def receive(seconds: float) -> bytes | None:
                channel.settimeout(seconds)
                try:
                    got: bytes = channel.recv(1 << 16)
                except TimeoutError:
                    got = b""
                    if link.alive and not channel.closed and not channel.eof_received:
                        return None
                if not got and not link.alive:
                    raise link.cut(f"while `{argv[0]}` ran", running=True)
                return got

            def send(data: bytes) -> None:
                try:
                    channel.sendall(data)
                except OSError as error:
                    if not link.alive:
                        raise link.cut(f"while `{argv[0]}` ran", running=True) from error
                    raise Ended(f"`{argv[0]}` ended", where=f"host {self.name}") from error

            try:
                yield Dialogue(f"host {self.name}", send, receive)
            finally:
                # Its end is waited for: what it held shall be free for the next command.
                if link.alive and not channel.closed:
                    channel.shutdown_write()
                    channel.status_event.wait(_CLOSING_S)

    @contextmanager
    def channel(self) -> Iterator[tuple[Any, Link]]:
        """A session channel of the connection; it waits while too many are open."""
        link = self._connections.link(self.hop, self.name)
        with link.session() as channel:
            yield channel, link

    def tunnel(self, address: str, port: int) -> Any:
        """A stream to a port as the host itself reaches it. Raises HostUnreachable."""
        return self._connections.link(self.hop, self.name).tunnel(address, port)

    def forward(self, address: str, port: int) -> int:
        """A port of this machine that leads there, as long as the connections are open."""
        return self._connections.forward(self, address, port)

    def at_close(self, end: Callable[[], None]) -> None:
        """Call `end` before the connections are closed."""
        self._connections.at_close(end)

    def _finish(
        self,
        channel: Any,
        link: Link,
        argv: tuple[str, ...],
        stdin: str,
        began: float,
        deadline: float,
    ) -> Completed:
        out, err = bytearray(), bytearray()
        first: float | None = None
        data = memoryview(stdin.encode())
        channel.setblocking(False)
        closed_input = False
        while True:
            ended = channel.eof_received or channel.closed
            while channel.recv_ready():
                first = first or time.time()
                out += channel.recv(1 << 16)
            while channel.recv_stderr_ready():
                err += channel.recv_stderr(1 << 16)
            if (ended and channel.exit_status_ready()) or not link.alive:
                break
            if data and channel.send_ready():
                try:
                    data = data[channel.send(bytes(data[: 1 << 15])) :]
                except OSError:  # it ended without reading all of it
                    data = data[len(data) :]
            if not data and not closed_input:
                channel.shutdown_write()
                closed_input = True
            if time.monotonic() > deadline:
                so_far = Completed(argv, -1, decoded(out), decoded(err), began, first)
                raise OutOfTime(so_far, self.name)
            if ended:
                channel.status_event.wait(_TICK_S)
            else:
                full = data and not channel.send_ready()
                select.select([channel], [], [], 0.01 if full else 0.0 if data else _TICK_S)
        if not channel.exit_status_ready() or (channel.exit_status < 0 and not link.alive):
            raise link.cut(f"while `{argv[0]}` ran", running=True)
        if channel.exit_status < 0:
            raise DdtreeError(f"`{argv[0]}` was ended by a signal", where=f"host {self.name}")
        return Completed(argv, channel.exit_status, decoded(out), decoded(err), began, first)
