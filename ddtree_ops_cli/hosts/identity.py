"""Logging in: the keys of the user's configuration and agent, in OpenSSH's order."""

from __future__ import annotations

import base64
import binascii
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import HostUnreachable
from .ssh_config import Hop

if TYPE_CHECKING:
    import paramiko

_AGENT_TIMEOUT_S = 5.0
_SIGNATURE_TIMEOUT_S = 60.0


def log_in(transport: paramiko.Transport, hop: Hop, *, where: str) -> None:
    """Try each key until the server takes one.

    Raises HostUnreachable with what was tried; paramiko's own errors if the connection ends.
    """
    import paramiko

    tried: list[str] = []
    accepted: list[str] = []
    with _agent(hop.agent) as held:
        for name, key in _keys(hop, held, tried):
            tried.append(name)
            try:
                missing = transport.auth_publickey(hop.user, key)
            except paramiko.BadAuthenticationType as refused:
                accepted = list(refused.allowed_types)
                break
            except paramiko.AuthenticationException:
                if not transport.is_active():
                    raise
                continue
            if transport.is_authenticated():
                return
            accepted = list(missing)
            break
    ways = f"; the server wants {', '.join(accepted)}" if accepted else ""
    raise HostUnreachable(
        f"{hop.title} took none of the keys ({', '.join(tried) or 'there is no key'}){ways}",
        where=where,
        mend=f"try `ssh {hop.user}@{hop.address}`; the key belongs into ~/.ssh/authorized_keys "
        "there, and IdentityFile or User into your SSH configuration",
    )


def _keys(hop: Hop, held: Mapping[bytes, Any], skipped: list[str]) -> Iterator[tuple[str, Any]]:
    """The agent's keys that a file names, then its others, then the files that it has not.

    A file that cannot be used is named in `skipped` with the reason.
    """
    files = {path: _public_blob(path) for path in hop.identity_files}
    for blob in files.values():
        if blob is not None and blob in held:
            yield f"agent: {_comment(held[blob])}", held[blob]
    if not hop.identities_only:
        for blob, key in held.items():
            if blob not in files.values():
                yield f"agent: {_comment(key)}", key
    for path, blob in files.items():
        if blob not in held and (key := _private(path, skipped)) is not None:
            yield str(path), key


def _private(path: Path, skipped: list[str]) -> Any:
    import paramiko

    if path.suffix == ".pub" or not path.is_file():
        return None
    try:
        return paramiko.PKey.from_path(path)
    except (paramiko.PasswordRequiredException, TypeError):
        skipped.append(f"{path}: has a passphrase, so `ssh-add` it")
    except (paramiko.SSHException, ValueError):
        skipped.append(f"{path}: is no private key")
    except OSError as error:
        skipped.append(f"{path}: {error.strerror}")
    except Exception as error:
        # UnknownKeyType derives from Exception itself.
        if type(error).__name__ != "UnknownKeyType":
            raise
        skipped.append(f"{path}: a type of key that is not supported")
    return None


def _public_blob(path: Path) -> bytes | None:
    for place in (path.with_name(path.name + ".pub"), path):
        try:
            words = place.read_text().split()
            if len(words) >= 2 and words[0].startswith(("ssh-", "ecdsa-", "sk-")):
                return base64.b64decode(words[1])
        except (OSError, UnicodeDecodeError, binascii.Error):
            continue
    return None


@contextmanager
def _agent(path: Path | None) -> Iterator[dict[bytes, Any]]:
    """The agent's keys by public blob, while it is connected to; none if it does not answer."""
    import paramiko
    from paramiko.agent import AgentSSH

    if path is None:
        yield {}
        return
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_AGENT_TIMEOUT_S)
        agent = AgentSSH()
        try:
            connection.connect(str(path))
            agent._connect(connection)
            held = {key.asbytes(): key for key in agent.get_keys()}
        except (OSError, paramiko.SSHException):
            held = {}
        # It may ask the user now, for a touch or a confirmation.
        connection.settimeout(_SIGNATURE_TIMEOUT_S)
        yield held


def _comment(key: Any) -> str:
    return str(getattr(key, "comment", "") or key.get_name())
