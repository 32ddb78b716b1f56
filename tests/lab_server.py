"""The lab server in tests: as a process of its own, or in a thread on a scripted engine."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from ddtree_ops_cli.lab.arguments import parse
from ddtree_ops_cli.lab.decode import Sampling, Step
from ddtree_ops_cli.lab.endpoints import application
from ddtree_ops_cli.lab.scheduler import Engine, Scheduler
from ddtree_ops_cli.lab.service import Service
from ddtree_ops_cli.lab.tokenizer import Tokenizer

PATIENCE_S = 30.0
NEVER = 10_000


@dataclass
class ScriptedEngine:
    """Answers what `follow` says comes after the tokens so far, a few tokens a step."""

    follow: Callable[[Sequence[int]], int]
    tokens_per_step: int = 3
    off_spine: int = 0
    vocab_size: int = 320
    block_size: int = 16
    context_length: int = 512
    eos_token_ids: frozenset[int] = frozenset()
    may_step: Callable[[], None] = lambda: None
    """Called before each step; blocks or raises at a test's will."""
    asked: list[tuple[tuple[int, ...], Sampling]] = field(default_factory=list)
    """Every prompt as it came to the engine, in order."""
    emitted: int = 0

    def choose(self, sequence: Sequence[int], decoded: int) -> int:
        """The token after `sequence`, of which `decoded` are the answer's; for faults to plant."""
        return self.follow(sequence)

    def generate(self, prompt: Sequence[int], sampling: Sampling) -> Iterator[Step]:
        self.asked.append((tuple(prompt), sampling))
        sequence = list(prompt)
        width = 1
        while len(sequence) < self.context_length:
            self.may_step()
            tokens = []
            for _ in range(width):
                tokens.append(self.choose(sequence, len(sequence) - len(prompt)))
                sequence.append(tokens[-1])
            self.emitted += len(tokens)
            yield Step(
                tuple(tokens),
                proposed=0 if width == 1 else 16,
                accepted=len(tokens) - 1,
                off_spine=min(self.off_spine, len(tokens) - 1),
            )
            width = self.tokens_per_step


@dataclass
class Served:
    url: str
    scheduler: Scheduler
    finish_loading: threading.Event


@contextmanager
def served(
    engine: Engine,
    directory: Path,
    *,
    algorithm: str = "DDTREE",
    name: str = "lab",
    loading: bool = False,
) -> Iterator[Served]:
    """Serve `engine` with the tokenizer of `directory`.

    With `loading`, the model is not there until the test sets `finish_loading`.
    """
    flags = ["--model-path", str(directory), "--served-model-name", name, "--random-seed", "1"]
    if algorithm != "none":
        flags += ["--speculative-algorithm", algorithm]
        flags += ["--speculative-draft-model-path", str(directory)]
    scheduler = Scheduler(speculative=algorithm != "none")
    service = Service(parse(flags), scheduler)
    server = uvicorn.Server(
        uvicorn.Config(
            application(service),
            port=0,
            log_config=None,
            http="h11",
            ws="none",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
    )
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    may_finish = threading.Event()
    if not loading:
        may_finish.set()

    def load() -> tuple[Engine, Tokenizer]:
        may_finish.wait(PATIENCE_S)
        return engine, Tokenizer.load(directory)

    def failed(error: Exception) -> None:
        raise error

    scheduler.start(load, service.take, failed)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started and (loading or service.ready))
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Served(f"http://127.0.0.1:{port}", scheduler, may_finish)
    finally:
        may_finish.set()
        server.should_exit = True
        scheduler.close(PATIENCE_S)
        thread.join(PATIENCE_S)


@dataclass
class Process:
    popen: subprocess.Popen[bytes]
    url: str
    log: Path


@contextmanager
def lab_process(target: Path, *flags: str, log: Path) -> Iterator[Process]:
    """The real server on a free port of loopback, ready; killed at the end if it still runs."""
    command = [sys.executable, "-m", "ddtree_ops_cli.lab.server", "--model-path", str(target)]
    command += ["--served-model-name", "lab", "--port", "0", *flags]
    with log.open("wb") as err:
        popen = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err
        )
    try:
        until(lambda: popen.poll() is not None or "ready: " in log.read_text())
        found = re.search(r"ready: .* on (http://\S+)", log.read_text())
        assert found is not None, log.read_text()
        yield Process(popen, found.group(1), log)
    finally:
        popen.kill()
        popen.wait()


def until(true: Callable[[], bool]) -> None:
    """Wait for what a test knows must come."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)
