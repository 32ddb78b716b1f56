"""Real hosts on one machine: each a set of namespaces with its own files, address and sshd.

Needs root and Linux, no GPU. The hosts share a Debian tree that is built once, under overlays
that are thrown away. The process that makes the rig moves into a network namespace of its own,
from where it reaches the hosts and nothing else; the machine's network is not touched.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_HERE = Path(__file__).parent
_CLONE_NEWNET = 0x40000000
_PACKAGES = (
    "ca-certificates,docker.io,docker-cli,docker-buildx,iptables,iproute2,openssh-server,"
    "busybox-static,tini,sudo,procps,python3-minimal"
)
TOOLS = ("mmdebstrap", "ip", "nsenter", "unshare", "ssh-keygen")


def build_base(directory: Path) -> Path:
    """The tree that all hosts share: some 500 MB of Debian, which takes minutes, once.

    From $DDTREE_RIG_MIRROR, or this machine's own mirror if it is a Debian.
    """
    base = directory / "base"
    if not base.exists():
        shown = ["apt-get", "indextargets", "--format", "$(SITE)", "Identifier: Packages"]
        sites = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.split()
        site = next(site for site in sites if "security" not in site)
        site = os.environ.get("DDTREE_RIG_MIRROR", site)
        half = directory / f"base.{os.getpid()}"
        stale = ["--aptopt=Acquire::Check-Valid-Until false"]
        build = ["mmdebstrap", "-q", "--variant=apt", *stale, f"--include={_PACKAGES}", "trixie"]
        subprocess.run([*build, str(half), site], check=True)
        half.rename(base)
    return base


@dataclass
class RigHost:
    name: str
    pid: int
    """Of its init, as this machine sees it."""
    home: Path
    leader: subprocess.Popen[str]
    addresses: list[str] = field(default_factory=list)
    networks: int = 0

    def run(self, *argv: str, check: bool = True, stdin: str = "") -> str:
        """As root on the host, past its sshd."""
        enter = ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "--"]
        plain = ["env", "-i", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
        done = subprocess.run(
            [*enter, *plain, *argv], input=stdin, capture_output=True, text=True, timeout=60
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

    def off(self) -> None:
        """As if the power was cut."""
        if self.leader.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.leader.wait(timeout=20)
        self.leader.stdout.close()  # type: ignore[union-attr]


class Rig:
    def __init__(self, directory: Path) -> None:
        self.base = build_base(directory)
        self.work = Path(tempfile.mkdtemp(prefix="hosts-", dir=directory))
        self.key = self.work / "id"
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        self.hosts: list[RigHost] = []
        self._outside = os.open("/proc/self/ns/net", os.O_RDONLY)
        _libc("unshare", _CLONE_NEWNET)
        _run("ip", "link", "set", "lo", "up")

    def boot(self, name: str, *, docker: bool = False) -> RigHost:
        """A host without a network yet."""
        home = self.work / name
        home.mkdir()
        apart = ["--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child"]
        smi, key = _HERE / "nvidia_smi.py", self.key.with_suffix(".pub").read_text().strip()
        words = [self.base, home, name, key, smi, "yes" if docker else "no"]
        with (home / "boot.log").open("w") as log:
            leader = subprocess.Popen(
                ["unshare", *apart, "--propagation", "private", "bash", str(_HERE / "boot.sh")]
                + [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert leader.stdout is not None
        if leader.stdout.readline().strip() != "ready":
            leader.kill()
            raise RuntimeError(f"{name} did not boot: {(home / 'boot.log').read_text()}")
        children = Path(f"/proc/{leader.pid}/task/{leader.pid}/children").read_text()
        host = RigHost(name, int(children.split()[0]), home, leader)
        self.hosts.append(host)
        return host

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

    def plug(self, cable: str, *, up: bool) -> None:
        """Pull the near end of a cable that leads from here, or put it back."""
        _run("ip", "link", "set", cable, "up" if up else "down")

    def down(self) -> None:
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
