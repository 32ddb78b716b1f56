"""What tests of the command line share: a home of their own, and the real command."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

# Before any test imports NumPy, which reads the number of BLAS threads then.
import ddtree_ops_cli.lab  # noqa: F401

# PyTorch's threads wait for each other where other work has the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

COMMAND_TIMEOUT_S = 120


@dataclass
class Ddtree:
    """The real `ddtree`, in a process of its own, with a home of its own."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, home: Path) -> Ddtree:
        """With everything that it keeps under `home`."""
        return cls(
            home,
            {
                "HOME": str(home),
                "XDG_CONFIG_HOME": str(home / ".config"),
                "XDG_STATE_HOME": str(home / ".local/state"),
                "COLUMNS": "200",
            },
        )

    def start(self, *words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "ddtree_ops_cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd or self.home,
            env={**os.environ, **self.environment},
        )

    def __call__(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        process = self.start(*words, cwd=cwd)
        out, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
        return subprocess.CompletedProcess(list(words), process.returncode, out, err)


@pytest.fixture
def ddtree(tmp_path: Path) -> Ddtree:
    home = tmp_path / "home"
    home.mkdir()
    return Ddtree.at(home)


def free_ports(count: int) -> Sequence[int]:
    """Consecutive ports of loopback on which nobody listens now.

    Each run of the tests begins elsewhere, so that two at a time do not meet.
    """
    for first in range(41000 + os.getpid() % 180 * 100, 60000, count):
        try:
            for port in range(first, first + count):
                with socket.create_server(("127.0.0.1", port)):
                    pass
        except OSError:
            continue
        return range(first, first + count)
    raise RuntimeError("no free ports")


def living(group: int) -> list[int]:
    """The processes of a group; a zombie that nobody has reaped yet is not one."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found
