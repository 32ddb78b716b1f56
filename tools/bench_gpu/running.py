"""Servers that run: start, wait until they answer, end with all their processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ddtree_ops_cli.bench.answer import Arm
from ddtree_ops_cli.engine_api.client import EngineClient
from ddtree_ops_cli.errors import Unhealthy

from .services import Service

_POLL_S = 1.0
_END_S = 10.0
_QUOTED_LINES = 25


@dataclass(slots=True)
class Running:
    service: Service
    process: subprocess.Popen[bytes]
    log: Path
    engine: EngineClient
    started: float = field(default_factory=time.monotonic)
    ready_after_s: float | None = None
    _family: dict[int, psutil.Process] = field(default_factory=dict)

    @property
    def arm(self) -> Arm:
        return Arm(self.service.arm, self.service.title, self.engine, self.service.model.name)

    def pids(self) -> frozenset[int]:
        """Of the server and of every process that it was seen to start."""
        # Once it has been waited for, its number may be another's.
        if self.process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                head = psutil.Process(self.process.pid)
                for one in (head, *head.children(recursive=True)):
                    self._family.setdefault(one.pid, one)
        return frozenset(self._family)

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_ready(self, limit_s: float) -> None:
        """Until it generates. Unhealthy with the end of its log if it dies or takes longer."""
        deadline = time.monotonic() + limit_s
        while self.ready_after_s is None:
            self.pids()
            if self.process.poll() is not None:
                raise self._unhealthy(f"ended with code {self.process.returncode} while starting")
            if time.monotonic() > deadline:
                raise self._unhealthy(
                    f"was not ready after {time.monotonic() - self.started:.0f} s"
                )
            if self.engine.health_generate().ready:
                self.ready_after_s = time.monotonic() - self.started
            else:
                time.sleep(_POLL_S)

    def kill(self) -> None:
        """At once, with every process that it started: a scheduler left behind holds its GPU."""
        self.pids()
        for one in self._family.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.wait()
        psutil.wait_procs(self._family.values(), timeout=_END_S)

    def _unhealthy(self, what: str) -> Unhealthy:
        end = "\n".join(self.log_text().splitlines()[-_QUOTED_LINES:])
        return Unhealthy(f"it {what}; its log ends:\n{end}", where=self.service.title)


@contextlib.contextmanager
def launched(service: Service, *, sglang: Path, folder: Path) -> Iterator[Running]:
    """The server, started and not yet ready; killed afterwards, whatever happens.

    Its log is `<title>.log` in `folder`, an existing one.
    """
    log = folder / f"{service.title}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            service.argv,
            env=service.environment(os.environ, sglang),
            # Its own folder: modules of the folder that we stand in must not shadow SGLang's.
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            # A Ctrl-C is for us; we end the server.
            start_new_session=True,
        )
    with EngineClient(f"http://127.0.0.1:{service.port}") as engine:
        running = Running(service, process, log, engine)
        try:
            yield running
        finally:
            running.kill()
