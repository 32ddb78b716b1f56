"""Host keys: what known_hosts says about a server, judged strictly. Files are only appended to.

The format is that of sshd(8), section SSH_KNOWN_HOSTS FILE FORMAT: plain, hashed and wildcard
names, `[host]:port`, `!` negation, the marker @revoked. Host certificates (@cert-authority) are
not supported: such a host must be known by its plain key.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import DdtreeError, HostUnreachable

_WORDS = {"ssh-ed25519": "ED25519", "ssh-rsa": "RSA", "ssh-dss": "DSA"}


@dataclass(frozen=True, slots=True)
class HostKey:
    kind: str
    """As known_hosts names it: ssh-ed25519, ecdsa-sha2-nistp256, ssh-rsa."""
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it."""
        digest = hashlib.sha256(self.blob).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    @property
    def word(self) -> str:
        return _WORDS.get(self.kind, "ECDSA" if self.kind.startswith("ecdsa") else self.kind)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a known_hosts file."""

    file: Path
    line: int
    marker: str
    names: tuple[str, ...]
    key: HostKey

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def matches(self, name: str) -> bool:
        found = False
        for pattern in self.names:
            if _fits(pattern.removeprefix("!"), name):
                if pattern.startswith("!"):
                    return False
                found = True
        return found


@dataclass(frozen=True, slots=True)
class Verdict:
    state: Literal["known", "unknown", "changed", "revoked"]
    entry: Entry | None
    """The line that decided; None for an unknown host."""


def parse(text: str, file: Path) -> list[Entry]:
    """A line that is no entry is skipped, as OpenSSH skips it."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):
            continue
        try:
            blob = base64.b64decode(words[2], validate=True)
        except binascii.Error:
            continue
        names = tuple(words[0].split(","))
        found.append(Entry(file, number, marker, names, HostKey(words[1], blob)))
    return found


def read(files: Iterable[Path]) -> list[Entry]:
    entries: list[Entry] = []
    for file in files:
        try:
            entries += parse(file.read_text(errors="replace"), file)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DdtreeError(str(error.strerror), where=str(file)) from error
    return entries


def judge(entries: Sequence[Entry], name: str, key: HostKey) -> Verdict:
    """Revocation first; then any line that has this very key; then a line that contradicts it."""
    here = [entry for entry in entries if entry.matches(name)]
    same = [entry for entry in here if entry.key == key]
    for entry in same:
        if entry.marker == "@revoked":
            return Verdict("revoked", entry)
    plain = [entry for entry in here if not entry.marker]
    for entry in same:
        if entry in plain:
            return Verdict("known", entry)
    # A key of another type than the listed ones contradicts them too: a server in between could
    # otherwise escape the check by offering a type that nobody has listed.
    for entry in sorted(plain, key=lambda entry: entry.key.kind != key.kind):
        return Verdict("changed", entry)
    return Verdict("unknown", None)


def known_kinds(entries: Iterable[Entry], name: str) -> list[str]:
    """The types of key that are listed for a name: a server is asked for one of these first."""
    return list(dict.fromkeys(e.key.kind for e in entries if not e.marker and e.matches(name)))


def refusal(verdict: Verdict, name: str, key: HostKey, *, host: str, title: str) -> HostUnreachable:
    """The error for a key that may not be trusted.

    `name` is the server's in known_hosts, `title` what people call it, `host` the profile.
    """
    where = f"host {host}"
    shown = f"{key.word} key {key.fingerprint}"
    if verdict.entry is None:
        return HostUnreachable(
            f"the host key of {title} is unknown: it shows the {shown}",
            where=where,
            mend=f"compare it with the host's own, then `ddtree hosts trust {host}`",
        )
    entry = verdict.entry
    if verdict.state == "revoked":
        return HostUnreachable(
            f"the host key of {title} is revoked by {entry.place}: it shows the {shown}",
            where=where,
            mend="give the host a new key; nobody who holds this one may be trusted",
        )
    return HostUnreachable(
        f"the host key of {title} changed: {entry.place} has the {entry.key.word} key "
        f"{entry.key.fingerprint}, it shows the {shown}",
        where=where,
        mend="somebody may be in between; if the host was set up anew, remove that line "
        f"(`ssh-keygen -R '{name}' -f {entry.file}`), then `ddtree hosts trust {host}`",
    )


def append(file: Path, name: str, keys: Iterable[HostKey], *, hashed: bool) -> list[str]:
    """Add a line for each key to a known_hosts file; what is in it stays as it is.

    The file is made with mode 0600 if it is missing, its folder with 0700. Returns the lines.
    """
    lines = []
    for key in keys:
        shown = _hashed(name, os.urandom(20)) if hashed else name
        lines.append(f"{shown} {key.kind} {base64.b64encode(key.blob).decode()}")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(file, "a+b", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
        text = "".join(line + "\n" for line in lines).encode()
        if opened.tell() > 0:
            opened.seek(-1, os.SEEK_END)
            if opened.read(1) != b"\n":
                text = b"\n" + text
        opened.write(text)
    return lines


def _fits(pattern: str, name: str) -> bool:
    if pattern.startswith("|1|"):
        try:
            salt = base64.b64decode(pattern.split("|")[2])
        except (IndexError, binascii.Error):
            return False
        return hmac.compare_digest(_hashed(name, salt), pattern)
    # fnmatch would read the brackets of [host]:port as a set of characters.
    literal = re.sub(r"\[", "[[]", pattern.lower())
    return fnmatch.fnmatchcase(name.lower(), literal)


def _hashed(name: str, salt: bytes) -> str:
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
