"""What is true on a host now: each fact is its value, or the reason why it is not known."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TypeVar

from ..errors import DdtreeError
from . import container_engine, gpus, probe
from .clock import Clock
from .container_engine import ContainerEngine
from .gpus import Gpu
from .probe import Answer
from .shell import OutOfTime, Shell
from .unknown import Unknown

_TIMEOUT_S = 40.0
_NOT_READ = Unknown("was not read", None)

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class System:
    hostname: str
    kernel: str
    architecture: str
    release: str
    """Such as Debian GNU/Linux 13 (trixie)."""


@dataclass(frozen=True, slots=True)
class Memory:
    total_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class Disk:
    mount: str
    total_bytes: int
    free_bytes: int
    """What a user that is not root may still write."""


@dataclass(frozen=True, slots=True)
class Listener:
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class HostFacts:
    system: System | Unknown = _NOT_READ
    clock: Clock | Unknown = _NOT_READ
    memory: Memory | Unknown = _NOT_READ
    disks: tuple[Disk, ...] | Unknown = _NOT_READ
    """The root file system, then Docker's, where that is another one."""
    ports: tuple[Listener, ...] | Unknown = _NOT_READ
    engine: ContainerEngine | Unknown = _NOT_READ
    gpus: tuple[Gpu, ...] | Unknown = _NOT_READ

    @property
    def unknown(self) -> dict[str, Unknown]:
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {n: fact for n, fact in found.items() if isinstance(fact, Unknown)}


def read_facts(shell: Shell, sections: tuple[str, ...] = probe.ALL) -> HostFacts:
    """All facts in one round trip. Raises HostUnreachable; a fact that fails is Unknown."""
    try:
        done = shell.run(["sh", "-s"], stdin=probe.script(sections), timeout_s=_TIMEOUT_S)
    except OutOfTime as error:
        done = error.completed
    answers = probe.answers(done.out)
    if not answers:
        said = probe.printable(done.err or done.out)
        raise DdtreeError(
            f"its shell does not run a script: {' '.join(said.split())[:200]}",
            where=f"host {shell.name}",
            mend="the login needs an ordinary shell, not a forced command",
        )
    return interpret(
        answers, sections, began_at=done.began_at, first_output_at=done.first_output_at
    )


def read_clock(shell: Shell) -> Clock | Unknown:
    """The host's clock alone. Raises HostUnreachable."""
    return read_facts(shell, ("clock",)).clock


def interpret(
    answers: Mapping[str, Answer],
    sections: tuple[str, ...],
    *,
    began_at: float,
    first_output_at: float | None,
) -> HostFacts:
    """Pure: the script's answers to facts."""

    def clock(answer: Answer) -> Clock | Unknown:
        arrived = first_output_at or began_at
        offset = float(answer.text) - (began_at + arrived) / 2
        return Clock(round(offset, 3), round((arrived - began_at) / 2, 3))

    def engine(answer: Answer) -> ContainerEngine | Unknown:
        hook, cdi = answers.get("hook"), answers.get("cdi")
        return container_engine.parse(
            answer.exit_code,
            answer.text,
            hook=hook is not None and hook.exit_code == 0,
            cdi=cdi.text if cdi is not None else "",
        )

    def cards(answer: Answer) -> tuple[Gpu, ...] | Unknown:
        if answer.exit_code != 0:
            return gpus.failure(answer.exit_code, answer.text)
        holders, owners = answers.get("holders"), answers.get("owners")
        if holders is None or holders.exit_code != 0:
            return gpus.failure(
                holders.exit_code if holders else 124, holders.text if holders else ""
            )
        found = gpus.parse_holders(holders.text, owners.text if owners else "")
        return gpus.parse(answer.text, found)

    def system(answer: Answer) -> System | Unknown:
        release = answers.get("release")
        return _system(answer.text, release.text if release else "")

    def fact(name: str, parse: Callable[[Answer], Value | Unknown]) -> Value | Unknown:
        if name not in sections:
            return _NOT_READ
        if name not in answers:
            return _missing(name, answers, sections)
        answer = answers[name]
        try:
            return parse(answer)
        except DdtreeError as error:
            return Unknown(error.what, error.mend)
        except (ValueError, IndexError, KeyError):
            return Unknown(f"cannot be read from: {shlex.quote(answer.text[:200])}", None)

    return HostFacts(
        system=fact("system", system),
        clock=fact("clock", clock),
        memory=fact("memory", lambda answer: _memory(answer.text)),
        disks=fact("disks", lambda answer: _disks(answer.text)),
        ports=fact("ports", lambda answer: _ports(answer.text)),
        engine=fact("engine", engine),
        gpus=fact("gpus", cards),
    )


def _missing(name: str, answers: Mapping[str, Answer], sections: tuple[str, ...]) -> Unknown:
    """The script was given up: its first section without an answer is what hung."""
    stuck = next(section for section in probe.ALL if section in sections and section not in answers)
    if name != stuck:
        return Unknown(f"was not read, because {stuck} before it hung", None)
    if name == "gpus":
        return gpus.failure(124, "")
    if name == "engine":
        return container_engine.failure(124, "")
    return Unknown("did not end in time", "see how busy the host is")


def _system(uname: str, release: str) -> System:
    kernel, hostname, version, architecture = uname.split()
    pretty = re.search(r'^PRETTY_NAME="?([^"\n]*)', release, re.MULTILINE)
    return System(hostname, f"{kernel} {version}", architecture, pretty[1] if pretty else "")


def _memory(text: str) -> Memory:
    kib = {
        key: int(rest.split()[0]) for key, _, rest in (x.partition(":") for x in text.splitlines())
    }
    return Memory(kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024)


def _disks(text: str) -> tuple[Disk, ...]:
    found: dict[str, Disk] = {}
    for line in text.splitlines():
        # A mount point may hold blanks; the device before the numbers too.
        match = re.search(r"\s(\d+)\s+\d+\s+(\d+)\s+\d+%\s+(/.*)$", line)
        if match:
            found.setdefault(match[3], Disk(match[3], int(match[1]), int(match[2])))
    if not found:
        raise ValueError(text)
    return tuple(found.values())


def _ports(text: str) -> tuple[Listener, ...]:
    """From /proc/net/tcp and tcp6: addresses are hexadecimal, each four bytes in host order."""
    import ipaddress

    found = set()
    for line in text.splitlines():
        address, port = line.split()[1].split(":")
        packed = b"".join(
            bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8)
        )
        found.add((int(port, 16), str(ipaddress.ip_address(packed))))
    return tuple(Listener(address, port) for port, address in sorted(found))
