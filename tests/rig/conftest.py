"""The hosts of `make test-rig`. Nothing here is collected unless DDTREE_RIG names a folder."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddtree_ops_cli.hosts.connection import Connections
from ddtree_ops_cli.hosts.ssh_config import SshConfig
from ddtree_ops_cli.profiles.load import Loaded
from ddtree_ops_cli.profiles.locate import Library
from ddtree_ops_cli.profiles.schema import HostProfile
from tests.conftest import Ddtree
from tests.rig import images as image_files
from tests.rig.rig import Access, Rig, RigHost, control_hierarchies, missing_tools

collect_ignore_glob = [] if "DDTREE_RIG" in os.environ else ["*"]


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    if reason := _why_not():
        # In CI a tier that did not run must not look like one that passed.
        (pytest.fail if "CI" in os.environ else pytest.skip)(reason)
    rig = Rig(Path(os.environ["DDTREE_RIG"]))
    try:
        yield rig
    finally:
        rig.down()


def _why_not() -> str | None:
    if os.geteuid() != 0:
        return "the rig makes hosts of namespaces, which needs root: sudo make test-rig"
    if missing := missing_tools():
        return (
            f"the rig needs {', '.join(missing)}: "
            "apt-get install mmdebstrap iproute2 util-linux openssh-client"
        )
    if not control_hierarchies():
        return "the rig pins GPUs with the device control group of cgroup version 1; none is here"
    return None


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


@pytest.fixture(scope="session")
def images(rig: Rig) -> Path:
    """Docker's files of the images that every Docker host has; see images.py."""
    return image_files.built(rig)


class DockerHosts:
    """Hosts with Docker, the images and GPUs; each boots when a test first asks for it."""

    def __init__(self, rig: Rig, images: Path) -> None:
        self._rig, self._images = rig, images
        self._booted: dict[str, Box] = {}

    def __call__(
        self,
        name: str,
        network: str,
        *,
        access: Access,
        via: RigHost | None = None,
        shared: Mapping[Path, str] | None = None,
    ) -> Box:
        if name not in self._booted:
            host = self._rig.boot(
                name,
                docker=True,
                gpus=4,
                access=access,
                shared=shared,
                prepare=lambda home: image_files.give(self._images, home),
            )
            cable = self._rig.connect(via, host, network)
            host.await_docker()
            self._booted[name] = Box(host, f"{network}.2", cable)
        return self._booted[name]


@pytest.fixture(scope="session")
def docker_hosts(rig: Rig, images: Path) -> DockerHosts:
    return DockerHosts(rig, images)


def _emptied(box: Box) -> Iterator[Box]:
    """After the test there is no container, no volume, no audit log and no fault left."""
    yield box
    host = box.host
    host.run(
        "sh", "-c", "docker ps -aq | xargs -r docker rm -f -v; docker volume prune -af"
        "; rm -rf /etc/rig-nvidia-smi /home/ops/.local/state/ddtree"
    )  # fmt: skip


@pytest.fixture
def gpu_host(docker_hosts: DockerHosts) -> Iterator[Box]:
    """Four GPUs, which containers get by `--gpus`."""
    yield from _emptied(docker_hosts("rig1", "10.77.21", access="gpus"))


@pytest.fixture
def cdi_host(docker_hosts: DockerHosts) -> Iterator[Box]:
    """Four GPUs, which containers get as CDI devices."""
    yield from _emptied(docker_hosts("rig2", "10.77.22", access="cdi"))


@pytest.fixture
def inner_gpu_host(
    docker_hosts: DockerHosts, behind: tuple[RigHost, RigHost, RigHost]
) -> Iterator[Box]:
    """Four GPUs on a host that only the first jump host (10.77.11.2) reaches."""
    yield from _emptied(docker_hosts("rig3", "10.77.23", access="gpus", via=behind[0]))


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
        """`fast` notices a cut link after seconds; a busy machine may be as late with an answer."""
        quick = "Host *\nServerAliveInterval 1\nServerAliveCountMax 4\nConnectTimeout 5\n"
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

    def declares(self, kind: str, name: str, text: str) -> None:
        """A profile that extends the one of its own name."""
        file = self.home / f".config/ddtree/profiles/{kind}/{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"extends: {name}\n{text}")

    def serves(
        self, name: str, box: Box, more: str = "", *, container: str = "", ready_timeout_s: int = 90
    ) -> None:
        """`name` is a Docker host for the lab's pair, whose weights lie there; its key is known.

        `more` goes into its profile, `container` into that section of every service's.
        """
        allowed = f"temporary_services: true\nready_timeout_s: {ready_timeout_s}\n"
        self.profile(name, box.address, allowed + more)
        self.knows((box.address, box.host))
        there = "/srv/models/lab-pair"
        self.declares("models", "lab-pair", f"target: {there}/target\ndrafter: {there}/drafter\n")
        # Who may not raise a limit of memory to be locked, as root here, gives containers none.
        limits = "container:\n  ulimits: {}\n  shm_size: 64m\n"
        for service in ("ddtree", "dflash-linear", "plain"):
            self.declares("services", service, limits + textwrap.indent(container, "  "))

    def connections(self, environment: dict[str, str] | None = None) -> Connections:
        nowhere = self.home / "no-system-config"
        return Connections(SshConfig(self.home, environment or {}, nowhere))


@pytest.fixture
def operator(ddtree: Ddtree, rig: Rig) -> Operator:
    (ddtree.home / ".ssh").mkdir(mode=0o700)
    operator = Operator(ddtree.home, ddtree, rig.key)
    operator.configure()
    return operator
