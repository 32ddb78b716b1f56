"""The way to an SSH server: TCP, a channel of a jump host, or a ProxyCommand.

Every way in which it can fail is a HostUnreachable that names the cause.
"""

from __future__ import annotations

import errno
import socket
import subprocess
import tempfile
from typing import IO, TYPE_CHECKING, Any

from ..errors import HostUnreachable
from .probe import printable
from .ssh_config import Hop

if TYPE_CHECKING:
    from .link import Link


class Way:
    """A byte stream to a server; nothing has been said on it yet."""

    def __init__(self, hop: Hop, via: Link | None, *, host: str) -> None:
        self.hop = hop
        self.where = f"host {host}"
        self._process: subprocess.Popen[bytes] | None = None
        self._complaints: IO[bytes] | None = None
        if via is not None:
            self.stream = self._channel(via)
        elif hop.proxy_command:
            self.stream = self._command(hop.proxy_command)
        else:
            self.stream = self._tcp()

    def close(self) -> None:
        self.stream.close()
        if self._process is not None:
            if self._process.poll() is None:
                self._process.terminate()
            self._process.wait()
        if self._complaints is not None:
            self._complaints.close()

    def complaint(self) -> str:
        """The last line that a ProxyCommand wrote about its failure."""
        if self._complaints is None:
            return ""
        self._complaints.seek(0)
        lines = self._complaints.read()[-4000:].decode(errors="replace").split("\n")
        return next((printable(line).strip() for line in reversed(lines) if line.strip()), "")

    def _tcp(self) -> Any:
        hop = self.hop
        try:
            return socket.create_connection((hop.address, hop.port), hop.connect_timeout_s)
        except socket.gaierror as error:
            raise self._failed(
                f"the name {hop.address} does not resolve ({error.strerror})",
                "correct `address` in its profile, or HostName in your SSH configuration",
            ) from error
        except ConnectionRefusedError as error:
            raise self._failed(
                f"{hop.address} refuses connections to port {hop.port}",
                "is its SSH server running, and is this its port?",
            ) from error
        except TimeoutError as error:
            raise self._failed(
                f"{hop.address}:{hop.port} did not answer within {hop.connect_timeout_s:g} s",
                "is the host up, and does a firewall or a missing VPN stand in between?",
            ) from error
        except OSError as error:
            known = {errno.EHOSTUNREACH: "there is no way to", errno.ENETUNREACH: "no network for"}
            what = known.get(error.errno or 0)
            raise self._failed(
                f"{what} {hop.address}" if what else f"{hop.address}: {error.strerror or error}",
                "is the host up, and is your network or VPN?",
            ) from error

    def _channel(self, via: Link) -> Any:
        import paramiko

        hop = self.hop
        try:
            return via.transport.open_channel(
                "direct-tcpip",
                (hop.address, hop.port),
                ("127.0.0.1", 0),
                timeout=hop.connect_timeout_s,
            )
        except paramiko.ChannelException as error:
            if error.code == 1:
                what, mend = (
                    "does not allow forwarding",
                    "set AllowTcpForwarding in its sshd_config",
                )
            else:
                what, mend = f"cannot reach {hop.address}:{hop.port}", "is that host up?"
            raise self._failed(
                f"the jump host {via.hop.title} {what} ({error.text or error})", mend
            ) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            if not via.alive:
                raise via.cut("before the next host was reached") from error
            raise self._failed(
                f"the jump host {via.hop.title} gets no answer from {hop.address}:{hop.port}",
                "is that host up?",
            ) from error

    def _command(self, command: str) -> Any:
        ours, theirs = socket.socketpair()
        complaints = self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - see close()
        with theirs:
            # The user's own shell line, from the user's own configuration, run as ssh runs it.
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=complaints,
            )
        ours.settimeout(self.hop.connect_timeout_s)
        return ours

    def _failed(self, what: str, mend: str) -> HostUnreachable:
        return HostUnreachable(what, where=self.where, mend=mend)
