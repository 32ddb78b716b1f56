"""How a host is reached: what ~/.ssh/config and the host's profile say. Pure but for reading files.

The options that are honoured are those of ssh_config(5) that `Hop` names; paramiko parses the
file, and `Include`, which it does not know, is resolved here first. `StrictHostKeyChecking` is
not honoured: host keys are always checked.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import HostUnreachable, ProfileError

if TYPE_CHECKING:
    from ..profiles.schema import HostProfile

_SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_MAX_HOPS = 8
_MAX_INCLUDES = 16
_MATCH_ALONE = frozenset({"all", "canonical", "final"})
_MATCH_WITH_VALUE = frozenset({"exec", "host", "originalhost", "user", "localuser"})
_JUMP = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@\s]+)@)?(?P<host>\[[^]]+\]|[^:\s]+)(?::(?P<port>\d+))?"
)


@dataclass(frozen=True, slots=True)
class Hop:
    """An SSH server, with all that is needed to log in to it."""

    address: str
    port: int
    user: str
    identity_files: tuple[Path, ...]
    """Keys to try, in this order; some may not exist."""
    identities_only: bool
    """Offer no key of the agent that is not among `identity_files`."""
    agent: Path | None
    """The socket of the agent, if there is one."""
    host_key_alias: str | None
    known_hosts: tuple[Path, ...]
    """Every file that may know the host's key: the user's, then the system's."""
    trust_file: Path | None
    """The user's known_hosts, where keys are added."""
    hash_known_hosts: bool
    connect_timeout_s: float
    alive_interval_s: float
    alive_count: int
    """After so many keep-alives without an answer the link counts as cut."""
    proxy_command: str | None
    via: Hop | None
    """The jump host on the way there."""

    @property
    def known_as(self) -> str:
        """The name under which known_hosts lists it."""
        if self.host_key_alias:
            return self.host_key_alias
        name = self.address.lower()
        return name if self.port == 22 else f"[{name}]:{self.port}"

    @property
    def title(self) -> str:
        return f"{self.user}@{self.address}:{self.port}"

    @property
    def chain(self) -> tuple[Hop, ...]:
        """Every hop in the order of travel, this one last."""
        return (*(self.via.chain if self.via else ()), self)


class SshConfig:
    """The user's and the system's ssh_config, as one text in which the first value wins."""

    def __init__(
        self, home: Path, environment: Mapping[str, str], system: Path = _SYSTEM_CONFIG
    ) -> None:
        self.home = home
        self.environment = environment
        self.file = home / ".ssh/config"
        user = _expanded(self.file, home / ".ssh", home)
        self._text = f"{user}\nHost *\n{_expanded(system, system.parent, home)}"

    def route(self, host: HostProfile) -> Hop:
        """The way to a host; what its profile says itself comes before the user's configuration.

        Raises ProfileError for a configuration that cannot be read, HostUnreachable for jump
        hosts that lead in a circle.
        """
        assert host.address is not None, "only a docker host has an address"
        return self._hop(host.address, host.user, host.port, jumps=None, seen=())

    def _hop(
        self,
        name: str,
        user: str | None,
        port: int | None,
        *,
        jumps: list[str] | None,
        seen: tuple[str, ...],
    ) -> Hop:
        if name in seen or len(seen) >= _MAX_HOPS:
            raise HostUnreachable(
                f"the jump hosts lead in a circle: {' > '.join((*seen, name))}",
                where=str(self.file),
                mend="give the jump host an entry with `ProxyJump none`",
            )
        options = self._lookup(name, user, port)
        proxy = None
        if jumps is None:
            # As in OpenSSH, of ProxyCommand and ProxyJump the one that was written first counts.
            first = next((key for key in options if key in ("proxycommand", "proxyjump")), None)
            proxy = options[first] if first == "proxycommand" else None
            jump = str(options[first] if first == "proxyjump" else "none")
            jumps = [] if jump.lower() == "none" else [word.strip() for word in jump.split(",")]
        via = None
        if jumps:
            match = _JUMP.fullmatch(jumps[-1])
            if match is None:
                raise ProfileError(
                    f"ProxyJump '{jumps[-1]}' is no [user@]host[:port]", where=str(self.file)
                )
            # The first jump host goes its own configured way; the later ones go through it.
            via = self._hop(
                match["host"].strip("[]"),
                match["user"],
                int(match["port"]) if match["port"] else None,
                jumps=jumps[:-1] or None,
                seen=(*seen, name),
            )
        return self._built(options, proxy, via)

    def _lookup(self, name: str, user: str | None, port: int | None) -> dict[str, Any]:
        import paramiko

        first = "Host *\n" + (f"User {user}\n" if user else "") + (f"Port {port}\n" if port else "")
        try:
            config = paramiko.SSHConfig.from_text(first + self._text)
            return dict(config.lookup(name))
        except (paramiko.SSHException, ValueError, KeyError) as error:
            raise ProfileError(
                f"cannot be read: {error}", where=str(self.file), mend="see `man ssh_config`"
            ) from error

    def _built(self, options: Mapping[str, Any], proxy: str | None, via: Hop | None) -> Hop:
        def number(key: str, default: float) -> float:
            return self._number(options, key, default)

        identities = [self._path(text) for text in options.get("identityfile", [])]
        known = self._files(options, "userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")
        system = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
        return Hop(
            address=str(options["hostname"]),
            port=int(number("port", 22)),
            user=str(options.get("user") or getpass.getuser()),
            identity_files=tuple(identities or [self.home / ".ssh" / key for key in _DEFAULT_KEYS]),
            identities_only=_yes(options.get("identitiesonly")),
            agent=self._agent(options.get("identityagent")),
            host_key_alias=options.get("hostkeyalias"),
            known_hosts=(*known, *self._files(options, "globalknownhostsfile", system)),
            trust_file=known[0] if known else None,
            hash_known_hosts=_yes(options.get("hashknownhosts")),
            connect_timeout_s=number("connecttimeout", 10),
            alive_interval_s=number("serveraliveinterval", 5) or 5.0,
            alive_count=int(number("serveralivecountmax", 3)) or 3,
            proxy_command=proxy,
            via=via,
        )

    def _number(self, options: Mapping[str, Any], key: str, default: float) -> float:
        text = str(options.get(key, default))
        if text.lower() == "none":
            return default
        try:
            return float(text)
        except ValueError:
            raise ProfileError(f"{key} '{text}' is not a number", where=str(self.file)) from None

    def _agent(self, value: str | None) -> Path | None:
        if value is not None and value.lower() == "none":
            return None
        if value in (None, "SSH_AUTH_SOCK"):
            value = self.environment.get("SSH_AUTH_SOCK")
        elif value and value.startswith("$") and not value.startswith("${"):
            value = self.environment.get(value[1:])
        return self._path(value) if value else None

    def _files(self, options: Mapping[str, Any], key: str, default: str) -> list[Path]:
        words = str(options.get(key, default)).split()
        return [self._path(word) for word in words if word.lower() != "none"]

    def _path(self, text: str) -> Path:
        text = re.sub(r"\$\{(\w+)\}", lambda name: self.environment.get(name[1], ""), text)
        text = text.replace("%d", str(self.home))
        return self.home / text[2:] if text.startswith("~/") else Path(text).expanduser()


def _yes(value: object) -> bool:
    return str(value).lower() in ("yes", "true")


def _expanded(file: Path, folder: Path, home: Path, depth: int = 0) -> str:
    """The text of a file with its `Include` lines replaced by what they include.

    After an included file the section goes on in which the `Include` stands.
    """
    try:
        lines = file.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ProfileError(str(error.strerror), where=str(file)) from error
    if depth > _MAX_INCLUDES:
        raise ProfileError("includes itself", where=str(file))
    found, section = [], "Host *"
    for number, line in enumerate(lines, start=1):
        keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if keyword.lower() in ("host", "match"):
            section = line
        if keyword.lower() == "match":
            _check_match(rest, f"{file}:{number}")
        if keyword.lower() != "include":
            found.append(line)
            continue
        for word in rest.replace('"', " ").split():
            pattern = str(home / word[2:]) if word.startswith("~/") else str(folder / word)
            root = Path(pattern)
            for included in sorted(Path(root.anchor).glob(str(root.relative_to(root.anchor)))):
                found += [_expanded(included, folder, home, depth + 1), section]
    return "\n".join(found)


def _check_match(rest: str, where: str) -> None:
    """paramiko takes a criterion that it does not know as fulfilled."""
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise ProfileError(f"Match cannot be read: {error}", where=where) from error
    while words:
        criterion = words.pop(0).removeprefix("!").lower()
        if criterion in _MATCH_WITH_VALUE:
            words[:1] = []
        elif criterion not in _MATCH_ALONE:
            raise ProfileError(
                f"Match {criterion} is not supported", where=where, mend="say it with Host"
            )


def user_config() -> SshConfig:
    return SshConfig(Path.home(), os.environ)
