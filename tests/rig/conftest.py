"""The hosts of `make test-rig`. Nothing here is collected unless DDTREE_RIG names a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddtree_ops_cli.hosts.connection import Connections
from ddtree_ops_cli.hosts.ssh_config import SshConfig
from ddtree_ops_cli.profiles.load import Loaded
from ddtree_ops_cli.profiles.locate import Library
from ddtree_ops_cli.profiles.schema import HostProfile
from tests.conftest import Ddtree
from tests.rig.rig import Rig, RigHost, missing_tools

collect_ignore_glob = [] if "DDTREE_RIG" in os.environ else ["*"]


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    if os.geteuid() != 0:
        pytest.skip("the rig makes hosts of namespaces, which needs root: sudo make test-rig")
    if missing := missing_tools():
        pytest.skip(f"the rig needs {', '.join(missing)}: apt-get install mmdebstrap iproute2")
    directory = Path(os.environ["DDTREE_RIG"])
    directory.mkdir(parents=True, exist_ok=True)
    rig = Rig(directory)
    try:
        yield rig
    finally:
        rig.down()


@dataclass
class Box:
    """A rig host with the cable that leads to it from here."""

    host: RigHost
    address: str
    cable: str


@pytest.fixture(scope="session")
def _gpu1(rig: Rig) -> Box:
    host = rig.boot("gpu1")
    cable = rig.connect(None, host, "10.77.1")
    return Box(host, "10.77.1.2", cable)


@pytest.fixture
def gpu1(rig: Rig, _gpu1: Box) -> Iterator[Box]:
    """A host; sshd's configuration, the cable and the faults of a test are undone after it."""
    yield _gpu1
    rig.plug(_gpu1.cable, up=True)
    _gpu1.host.run("rm", "-f", "/etc/rig-nvidia-smi", "/usr/local/bin/date")
    _gpu1.host.restart_sshd()


@pytest.fixture(scope="session")
def behind(rig: Rig) -> tuple[RigHost, RigHost, RigHost]:
    """Two jump hosts and the host behind them, each on a network of its own."""
    first, second, inner = (rig.boot(name) for name in ("jump1", "jump2", "inner"))
    rig.connect(None, first, "10.77.11")
    rig.connect(first, second, "10.77.12")
    rig.connect(second, inner, "10.77.13")
    return first, second, inner


@dataclass
class Operator:
    """The user: a home with SSH configuration, known hosts and profiles."""

    home: Path
    ddtree: Ddtree
    key: Path

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh/known_hosts"

    def configure(self, text: str = "", *, fast: bool = True) -> None:
        """`fast` notices a cut link after a second."""
        quick = "Host *\nServerAliveInterval 0.3\nServerAliveCountMax 3\nConnectTimeout 3\n"
        last = f"\nHost *\nIdentityFile {self.key}\nUser ops\nHashKnownHosts no\n"
        (self.home / ".ssh/config").write_text(text + "\n" + (quick if fast else "") + last)

    def knows(self, *entries: tuple[str, RigHost]) -> None:
        """known_hosts has exactly these hosts' true keys."""
        lines = [f"{name} {host.host_key(kind)}\n" for name, host in entries
                 for kind in ("ed25519", "rsa")]  # fmt: skip
        self.known_hosts.write_text("".join(lines))

    def profile(self, name: str, address: str, more: str = "") -> Loaded[HostProfile]:
        profiles = self.home / ".config/ddtree/profiles"
        file = profiles / "hosts" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            f"description: rig\nruntime: docker\naddress: {address}\nmodel: lab-pair\n{more}"
        )
        return Library([profiles]).host(name)

    def connections(self, environment: dict[str, str] | None = None) -> Connections:
        nowhere = self.home / "no-system-config"
        return Connections(SshConfig(self.home, environment or {}, nowhere))


@pytest.fixture
def operator(ddtree: Ddtree, rig: Rig) -> Operator:
    (ddtree.home / ".ssh").mkdir(mode=0o700)
    operator = Operator(ddtree.home, ddtree, rig.key)
    operator.configure()
    return operator
