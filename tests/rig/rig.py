"""Real hosts on one machine: each a set of namespaces with its own files, address and sshd.

Needs root and Linux, no GPU. The hosts share a Debian tree that is built once, under overlays
that are thrown away. The process that makes the rig moves into a network namespace of its own,
from where it reaches the hosts and nothing else; the machine's network is not touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from tests.rig import gpus as gpu_table
from tests.rig import trees

_CLONE_NEWNET = 0x40000000
_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
# Docker sees an out-of-memory kill only with the hierarchy that has no controller.
_NAMED = "name=systemd"
TOOLS = ("mmdebstrap", "ip", "nsenter", "unshare", "setpriv", "ssh-keygen")
Access = Literal["gpus", "cdi"]
"""How a host's Docker gives GPUs to containers: the hook of `--gpus`, or a CDI file."""


@dataclass
class RigHost:
    name: str
    home: Path
    settings: Mapping[str, str]
    """What its boot.sh is told."""
    addresses: list[str] = field(default_factory=list)
    groups: list[Path] = field(default_factory=list)
    """Its control groups, one a hierarchy."""
    networks: int = 0
    pid: int = field(init=False)
    """Of its init, as this machine sees it."""
    leader: subprocess.Popen[str] = field(init=False)

    def run(self, *argv: str, check: bool = True, stdin: str | IO[bytes] | None = "") -> str:
        """As root on the host, past its sshd."""
        enter = ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "-C", "--"]
        plain = ["env", "-i", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
        feed: dict[str, Any] = {"input": stdin} if isinstance(stdin, str) else {"stdin": stdin}
        done = subprocess.run(
            [*enter, *plain, *argv], **feed, capture_output=True, text=True, timeout=120
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{argv} on {self.name}: {done.stdout}{done.stderr}")
        return done.stdout

    def write(self, path: str, text: str, mode: str = "644") -> None:
        self.run("sh", "-c", f"cat >{path} && chmod {mode} {path}", stdin=text)

    def read(self, path: str) -> str:
        return self.run("cat", path)

    def restart_sshd(self, extra: str = "") -> None:
        """With more configuration; logins that are open stay so."""
        self.write("/etc/ssh/sshd_config.d/10-test.conf", extra)
        self.run("sh", "-c", "kill $(cat /run/sshd.pid); /usr/sbin/sshd -E /var/log/sshd.log")

    def logins(self) -> int:
        """How many times somebody has logged in since the host booted."""
        return self.read("/var/log/sshd.log").count("Accepted publickey")

    def host_key(self, kind: str = "ed25519") -> str:
        """`type base64`, as known_hosts has it."""
        return " ".join(self.read(f"/etc/ssh/ssh_host_{kind}_key.pub").split()[:2])

    def new_host_keys(self) -> None:
        self.run("sh", "-c", "rm -f /etc/ssh/ssh_host_*")
        self.run(
            "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/etc/ssh/ssh_host_ed25519_key"
        )
        self.restart_sshd()

    def start_docker(self, *options: str) -> None:
        """Returns when it answers."""
        # A process of the host belongs into the host's control groups.
        joined = "for group in /sys/fs/cgroup/*/cgroup.procs; do echo $$ >$group; done"
        begin = 'setsid dockerd "$@" >>/var/log/dockerd.log 2>&1 </dev/null &'
        self.run("bash", "-c", f"{joined}; {begin}", "start", *options)
        self.await_docker()

    def await_docker(self) -> None:
        for _ in range(200):
            if self.run(
                "docker", "version", "--format", "{{.Server.Version}}", check=False
            ).strip():
                return
            time.sleep(0.1)
        raise RuntimeError(f"no Docker on {self.name}: {self.read('/var/log/dockerd.log')}")

    def stop_docker(self) -> None:
        """The daemon; containers go on, as on every host of the rig (live-restore)."""
        self.run("sh", "-c", "pid=$(cat /run/docker.pid); kill $pid; tail --pid=$pid -f /dev/null")

    def cut(self) -> None:
        """Begin what `off` waits for."""
        if self.leader.returncode is not None:
            return  # Its number may be another's by now.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def off(self) -> None:
        """As if the power was cut."""
        self.cut()
        self.leader.wait(timeout=20)
        self.leader.stdout.close()  # type: ignore[union-attr]
        for group in self.groups:
            _remove_group(group)


class Rig:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        with trees.locked(directory):
            _sweep(directory)
        # While this process still has the machine's network.
        self.base = trees.host_tree(directory)
        self.engine_root = trees.engine_root(directory)
        self.work = Path(tempfile.mkdtemp(prefix=f"hosts-{os.getpid()}-", dir=directory))
        self.key = self.work / "id"
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        self.hosts: list[RigHost] = []
        self._outside = os.open("/proc/self/ns/net", os.O_RDONLY)
        _libc("unshare", _CLONE_NEWNET)
        _run("ip", "link", "set", "lo", "up")

    def boot(
        self,
        name: str,
        *,
        docker: bool = False,
        gpus: int = 0,
        access: Access | None = None,
        shared: Mapping[Path, str] | None = None,
        prepare: Callable[[Path], None] | None = None,
    ) -> RigHost:
        """A host without a network yet.

        Of this machine's folders it has those in `shared`, read-only, and the lab's pair of models
        at /srv/models/lab-pair. `prepare` gets its own folder before it starts.
        """
        home = self.work / name
        home.mkdir()
        if prepare:
            prepare(home)
        folders = {trees.PACKAGE / "lab/weights": "/srv/models/lab-pair", **(shared or {})}
        settings = {
            "BASE": self.base,
            "HOST_HOME": home,
            "NAME": name,
            "KEY": self.key.with_suffix(".pub").read_text().strip(),
            "PARTS": trees.HERE,
            "SHARED": "\n".join(f"{here}:{there}" for here, there in folders.items()),
            "HIERARCHIES": " ".join(control_hierarchies()) if docker else "",
            "GPUS": gpus,
            "ACCESS": access or "none",
        }
        (home / "gpus.json").write_text(gpu_table.table(gpus))
        (home / "cdi.json").write_text(gpu_table.cdi(gpus))
        host = RigHost(name, home, {key: str(value) for key, value in settings.items()})
        self._switch_on(host)
        self.hosts.append(host)
        return host

    def boot_again(self, host: RigHost, near: RigHost | None, network: str) -> str:
        """After `off`: with the disk that it had, and one cable. Returns the near end."""
        self._switch_on(host)
        host.networks = 0
        host.addresses.clear()
        return self.connect(near, host, network)

    def _switch_on(self, host: RigHost) -> None:
        used = control_hierarchies() if host.settings["HIERARCHIES"] else {}
        host.groups = [_own_group(at, f"{self.work.name}-{host.name}") for at in used.values()]
        apart = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
        held = ["--fork", "--kill-child", "--propagation", "private"]
        # The host ends with the process that made it, whatever ends that.
        bound = ["setpriv", "--pdeathsig", "KILL", "unshare", *apart, *held]
        join = 'for group in $GROUPS_JOINED; do echo $$ >$group/cgroup.procs; done; exec "$@"'
        with (host.home / "boot.log").open("w") as log:
            host.leader = leader = subprocess.Popen(
                ["sh", "-c", join, "join", *bound, "bash", str(trees.HERE / "boot.sh")],
                env={**os.environ, **host.settings,
                     "GROUPS_JOINED": " ".join(str(group) for group in host.groups)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )  # fmt: skip
        assert leader.stdout is not None
        if leader.stdout.readline().strip() != "ready":
            leader.kill()
            raise RuntimeError(f"{host.name} did not boot: {(host.home / 'boot.log').read_text()}")
        children = Path(f"/proc/{leader.pid}/task/{leader.pid}/children").read_text()
        host.pid = int(children.split()[0])

    def connect(self, near: RigHost | None, far: RigHost, network: str) -> str:
        """A cable between two hosts, or from here; `network` is like 10.77.1. Returns the far end.

        The far end's address is `network`.2, the near end's `network`.1.
        """
        near_end, far_end = f"v{network.rsplit('.', 1)[1]}-{far.name}"[:15], f"eth{far.networks}"
        far.networks += 1
        inside = ["nsenter", "-t", str(near.pid), "-n"] if near else []
        _run(*inside, "ip", "link", "add", near_end, "type", "veth", "peer", "name", far_end,
             "netns", str(far.pid))  # fmt: skip
        for words in (
            (*inside, "ip", "addr", "add", f"{network}.1/24", "dev", near_end),
            (*inside, "ip", "link", "set", near_end, "up"),
            ("nsenter", "-t", str(far.pid), "-n", "ip", "addr", "add", f"{network}.2/24", "dev",
             far_end),
            ("nsenter", "-t", str(far.pid), "-n", "ip", "link", "set", far_end, "up"),
        ):  # fmt: skip
            _run(*words)
        far.addresses.append(f"{network}.2")
        return near_end

    @property
    def outside(self) -> list[str]:
        """Words before a command that needs the machine's own network, which this has left."""
        return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self._outside}", "--"]

    def plug(self, cable: str, *, up: bool) -> None:
        """Pull the near end of a cable that leads from here, or put it back."""
        _run("ip", "link", "set", cable, "up" if up else "down")

    def down(self) -> None:
        for host in self.hosts:
            host.cut()
        for host in self.hosts:
            host.off()
        _libc("setns", self._outside, _CLONE_NEWNET)
        os.close(self._outside)
        for _ in range(20):
            shutil.rmtree(self.work, ignore_errors=True)
            if not self.work.exists():
                return
            time.sleep(0.1)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stdout}{done.stderr}")


def _libc(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def missing_tools() -> Sequence[str]:
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def control_hierarchies() -> dict[str, Path]:
    """Mount options of each version 1 hierarchy that Docker uses, and where it is mounted.

    Empty if this machine has version 2 alone, where only a BPF program could pin a GPU.
    """
    found = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, options, *_ = line.split()
        named = [o for o in options.split(",") if o in (*_CONTROLLERS, _NAMED)]
        if kind == "cgroup" and named:
            found[",".join(named)] = Path(mount)
    return found if any("devices" in options for options in found) else {}


def _own_group(hierarchy: Path, name: str) -> Path:
    group = hierarchy / f"ddtree-rig-{name}"
    group.mkdir()
    for setting in ("cpuset.cpus", "cpuset.mems"):
        if (group / setting).exists():
            (group / setting).write_text((hierarchy / setting).read_text())
    return group


def _remove_group(group: Path) -> None:
    """With those of its containers. A process that has just been killed may keep it for a while."""
    for _ in range(100):
        for folder in sorted(group.rglob("*/"), key=lambda one: -len(one.parts)):
            with contextlib.suppress(OSError):
                folder.rmdir()
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{group} still has processes")


def _sweep(directory: Path) -> None:
    """Remove what a rig left whose process was killed."""
    for work in directory.glob("hosts-*-*"):
        if not Path("/proc", work.name.split("-")[1]).exists():
            shutil.rmtree(work, ignore_errors=True)
    for mount in control_hierarchies().values():
        for group in mount.glob("ddtree-rig-hosts-*"):
            if not Path("/proc", group.name.split("-")[3]).exists():
                _remove_group(group)
