"""Making a host's key known: what its servers show, jump hosts included, and what is added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import DdtreeError
from . import host_keys
from .connection import Connections
from .host_keys import HostKey
from .link import Link, greet, shown_key
from .ssh_config import Hop

_KINDS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
)

Approve = Callable[[Hop, Sequence[HostKey], Sequence[HostKey]], Sequence[HostKey]]
"""(server, known keys, new keys) -> which new ones to trust; raises to trust none and stop."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """What became of one server's keys."""

    server: str
    known_as: str
    file: Path
    known: tuple[HostKey, ...]
    added: tuple[HostKey, ...]


def trust(
    connections: Connections, hop: Hop, approve: Approve, *, host: str, dry_run: bool = False
) -> list[Trusted]:
    """Make every server on the way to a host known, the nearest first.

    A server's key is asked for anew with each type, so that any client may meet any of them.
    A dry run ends at the first jump host that is not known yet: what is behind it is not reached.
    Raises HostUnreachable for a key that contradicts known_hosts or is revoked in it.
    """
    done = []
    for server in hop.chain:
        via = connections.link(server.via, host) if server.via else None
        result = _trust(server, via, approve, host=host, dry_run=dry_run)
        done.append(result)
        if dry_run and result.added and not result.known:
            break
    return done


def _trust(hop: Hop, via: Link | None, approve: Approve, *, host: str, dry_run: bool) -> Trusted:
    if hop.trust_file is None:
        raise DdtreeError(
            "your SSH configuration names no UserKnownHostsFile to add keys to",
            where=f"host {host}",
        )
    entries = host_keys.read(hop.known_hosts)
    known, new, contradicted = [], [], []
    for key in offered(hop, via, host=host):
        verdict = host_keys.judge(entries, hop.known_as, key)
        if verdict.state == "known":
            known.append(key)
        elif verdict.entry is None:
            new.append(key)
        elif verdict.state == "revoked" or verdict.entry.key.kind == key.kind:
            raise host_keys.refusal(verdict, hop.known_as, key, host=host, title=hop.title)
        else:
            new.append(key)
            contradicted.append((verdict, key))
    if contradicted and not known:
        verdict, key = contradicted[0]
        raise host_keys.refusal(verdict, hop.known_as, key, host=host, title=hop.title)
    added = tuple(approve(hop, known, new)) if new else ()
    if added and not dry_run:
        host_keys.append(hop.trust_file, hop.known_as, added, hashed=hop.hash_known_hosts)
    return Trusted(hop.title, hop.known_as, hop.trust_file, tuple(known), added)


def offered(hop: Hop, via: Link | None, *, host: str) -> list[HostKey]:
    """The host key of each type that a server has; nothing is logged in to."""
    import paramiko

    found = []
    for kind in _KINDS:
        try:
            transport, way = greet(hop, via, [kind], host=host, only=True)
        except paramiko.IncompatiblePeer:
            continue
        found.append(shown_key(transport))
        transport.close()
        way.close()
    return found
