"""A connection to one SSH server: opened with strict host keys, watched by keep-alives.

Every way in which it can fail is a HostUnreachable that names the cause.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import HostUnreachable
from . import host_keys
from .host_keys import HostKey
from .identity import log_in
from .ssh_config import Hop
from .way import Way

if TYPE_CHECKING:
    import paramiko

_MAX_SESSIONS = 4
"""At once on a connection; a server's MaxSessions is 10 unless it was lowered."""
_ATTEMPTS = 5
_BACK_OFF_S = 0.5
"""Doubled at each attempt after a server that is too busy dropped us."""
_CHANNEL_TIMEOUT_S = 20.0


class _Dropped(Exception):
    """The server hung up before it said who it is."""


class Link:
    """A server that we are logged in to."""

    def __init__(self, hop: Hop, transport: paramiko.Transport, way: Way, *, host: str) -> None:
        self.hop = hop
        self.host = host
        self.transport = transport
        self._way = way
        self._sessions = threading.BoundedSemaphore(_MAX_SESSIONS)
        self._closing = threading.Event()
        threading.Thread(target=self._watch, name=f"keep-alive {hop.title}", daemon=True).start()

    @property
    def alive(self) -> bool:
        """False once it is cut; a link that answers no keep-alive is cut by this side."""
        return bool(self.transport.is_active())

    @contextmanager
    def session(self) -> Iterator[Any]:
        """A new session channel; it waits while too many are open."""
        with self._sessions:
            channel = self.guarded(
                lambda: self.transport.open_session(timeout=_CHANNEL_TIMEOUT_S),
                "before the command ran",
            )
            try:
                yield channel
            finally:
                channel.close()

    def tunnel(self, address: str, port: int) -> Any:
        """A stream to a port as the server reaches it; it does not count as a session."""
        return self.guarded(
            lambda: self.transport.open_channel(
                "direct-tcpip", (address, port), ("127.0.0.1", 0), timeout=_CHANNEL_TIMEOUT_S
            ),
            f"before {address}:{port} was reached",
        )

    def guarded(self, work: Callable[[], Any], when: str) -> Any:
        """What `work` gives; an error of the connection is told as one."""
        import paramiko

        try:
            return work()
        except (paramiko.SSHException, OSError, EOFError) as error:
            if not self.alive:
                raise self.cut(when) from error
            raise HostUnreachable(
                f"{self.hop.title} refused a session: {error}",
                where=f"host {self.host}",
                mend="see MaxSessions in its sshd_config, and how busy it is",
            ) from error

    def cut(self, when: str, *, running: bool = False) -> HostUnreachable:
        return HostUnreachable(
            f"the connection to {self.hop.title} was cut {when}",
            where=f"host {self.host}",
            mend="it may have ended or not: see what it did before you repeat it"
            if running
            else "is the host up, and is your network?",
        )

    def close(self) -> None:
        self._closing.set()
        self.transport.close()
        self._way.close()

    def _watch(self) -> None:
        patience = self.hop.alive_interval_s * self.hop.alive_count
        while not self._closing.wait(self.hop.alive_interval_s) and self.transport.is_active():
            end = threading.Timer(patience, self.transport.close)
            end.daemon = True
            end.start()
            try:
                # Every server answers, if only that it does not know the request.
                self.transport.global_request("keepalive@openssh.com", wait=True)
            except (OSError, EOFError):
                return
            finally:
                end.cancel()


def open_link(hop: Hop, via: Link | None, *, host: str) -> Link:
    """Connect, check the host key, log in. Raises HostUnreachable."""
    import paramiko

    entries = host_keys.read(hop.known_hosts)
    transport, way = greet(hop, via, host_keys.known_kinds(entries, hop.known_as), host=host)
    try:
        key = shown_key(transport)
        verdict = host_keys.judge(entries, hop.known_as, key)
        if verdict.state != "known":
            raise host_keys.refusal(verdict, hop.known_as, key, host=host, title=hop.title)
        log_in(transport, hop, where=way.where)
        return Link(hop, transport, way, host=host)
    except (paramiko.SSHException, OSError, EOFError) as error:
        transport.close()
        way.close()
        raise HostUnreachable(
            f"{hop.title} ended the connection during login ({error or type(error).__name__})",
            where=way.where,
            mend="too many keys may have been offered: set IdentityFile and IdentitiesOnly in "
            "your SSH configuration",
        ) from error
    except BaseException:
        transport.close()
        way.close()
        raise


def greet(
    hop: Hop, via: Link | None, kinds: list[str], *, host: str, only: bool = False
) -> tuple[paramiko.Transport, Way]:
    """Reach a server and agree on keys with it; its host key is not judged yet.

    A server that hangs up at once (MaxStartups, a penalty) is tried again, later each time.
    `kinds` are the types of host key to ask for first, or alone with `only`. Raises
    HostUnreachable, and paramiko.IncompatiblePeer if it has no such key.
    """
    pause = _BACK_OFF_S
    for attempt in range(1, _ATTEMPTS + 1):
        way = Way(hop, via, host=host)
        try:
            return _handshake(way, kinds, only=only), way
        except _Dropped as dropped:
            complaint = way.complaint()
            way.close()
            if complaint:
                raise HostUnreachable(
                    f"ProxyCommand to {hop.title} failed: {complaint}",
                    where=way.where,
                    mend=f"it is `{hop.proxy_command}`",
                ) from dropped
            if attempt == _ATTEMPTS:
                raise HostUnreachable(
                    f"{hop.title} hung up before its greeting, {_ATTEMPTS} times",
                    where=way.where,
                    mend="too many logins may be going on (MaxStartups in its sshd_config), or "
                    "it bars this address for a while (PerSourcePenalties)",
                ) from dropped
            time.sleep(pause * random.uniform(0.75, 1.25))
            pause *= 2
        except BaseException:
            way.close()
            raise
    raise AssertionError("unreachable")


def shown_key(transport: paramiko.Transport) -> HostKey:
    key = transport.get_remote_server_key()
    return HostKey(key.get_name(), key.asbytes())


def _handshake(way: Way, kinds: list[str], *, only: bool) -> paramiko.Transport:
    import paramiko

    hop = way.hop
    transport = paramiko.Transport(way.stream)
    transport.banner_timeout = transport.handshake_timeout = hop.connect_timeout_s
    transport.auth_timeout = 3 * hop.connect_timeout_s
    options = transport.get_security_options()
    # A server proves an RSA key by a newer signature than the key's own name says.
    asked = [a for k in kinds for a in _SIGNATURES.get(k, (k,)) if a in options.key_types]
    rest = () if only else tuple(k for k in options.key_types if k not in asked)
    options.key_types = (*asked, *rest)
    try:
        transport.start_client(timeout=3 * hop.connect_timeout_s)
        return transport
    except paramiko.IncompatiblePeer as error:
        transport.close()
        if only:
            raise
        raise HostUnreachable(
            f"{hop.title} offers no algorithm in common: {error}",
            where=way.where,
            mend="update its SSH server",
        ) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        transport.close()
        if "protocol version" in str(error):
            raise HostUnreachable(
                f"{hop.address}:{hop.port} is no SSH server",
                where=way.where,
                mend="correct `port` in its profile, or Port in your SSH configuration",
            ) from error
        if isinstance(error.__context__, TimeoutError) or isinstance(error, TimeoutError):
            raise HostUnreachable(
                f"{hop.title} was reached but did not greet within {hop.connect_timeout_s:g} s",
                where=way.where,
                mend=way.complaint() or "is the host overloaded, and is this an SSH server?",
            ) from error
        raise _Dropped from error


_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
