"""One SGLang server in a process of its own, for as long as a test needs it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

SHIMS = Path(__file__).parent / "shims"
START_LIMIT_S = 600
ANSWER_LIMIT_S = 1800
"""Interpreted kernels take seconds per step, and more on a busy machine."""


class Server:
    def __init__(self, url: str, log: Path):
        self.url = url
        self.log = log

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=60)

    def post(self, prompt: Sequence[int], **sampling: Any) -> httpx.Response:
        parameters = {"temperature": 0, "ignore_eos": True, **sampling}
        return self.post_body({"input_ids": list(prompt), "sampling_params": parameters})

    def post_body(self, body: dict[str, Any]) -> httpx.Response:
        return httpx.post(f"{self.url}/generate", json=body, timeout=ANSWER_LIMIT_S)

    def generate(self, prompt: Sequence[int], tokens: int) -> dict[str, Any]:
        answer = self.post(prompt, max_new_tokens=tokens)
        answer.raise_for_status()
        return answer.json()

    def generate_together(
        self, prompts: Sequence[Sequence[int]], tokens: int
    ) -> list[dict[str, Any]]:
        """All prompts at once; what the server batches is up to it."""
        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(lambda prompt: self.generate(prompt, tokens), prompts))


def argv(target: Path, drafter: Path | None, *more: str, port: int = 0) -> list[str]:
    line = [sys.executable, "-m", "launch_server", "--device", "cpu"]
    line += ["--host", "127.0.0.1", "--port", str(port), "--model-path", str(target)]
    line += ["--dtype", "float32", "--attention-backend", "triton", "--context-length", "512"]
    line += ["--triton-attention-num-kv-splits", "1", "--max-total-tokens", "4096"]
    line += ["--max-running-requests", "4", "--skip-server-warmup", "--enable-metrics"]
    line += ["--disable-cuda-graph", "--disable-prefill-cuda-graph"]
    if drafter is not None:
        line += ["--speculative-draft-model-path", str(drafter)]
        line += ["--speculative-draft-attention-backend", "triton"]
    return [*line, *more]


def environment(engine: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": f"{SHIMS}:{engine}",
        "TRITON_INTERPRET": "1",
        "SGLANG_USE_CPU_ENGINE": "0",
        "SGLANG_MAMBA_CONV_DTYPE": "float32",
        "HF_HUB_OFFLINE": "1",
        # Several servers share the cores, and the kernels are Python.
        "OMP_NUM_THREADS": "1",
        "DDTREE_UNCHECKED_OVERFLOW": "1",
    }


@contextmanager
def serving(
    engine: Path, target: Path, drafter: Path | None, *more: str, log: Path
) -> Iterator[Server]:
    """Starts, waits until healthy, and stops. Raises RuntimeError with the log's end otherwise."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv(target, drafter, *more, port=port),
            env=environment(engine),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Server(f"http://127.0.0.1:{port}", log)
    try:
        _wait(server, process)
        yield server
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(server: Server, process: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + START_LIMIT_S
    while time.monotonic() < limit:
        if process.poll() is not None:
            break
        try:
            if server.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    end = server.log.read_text(errors="replace")[-4000:]
    raise RuntimeError(f"the server did not become healthy; its log ends:\n{end}")


def refused(engine: Path, target: Path, drafter: Path, *more: str) -> str:
    """What a server prints on stderr that must not start."""
    done = subprocess.run(
        argv(target, drafter, *more),
        env=environment(engine),
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        check=False,
    )
    assert done.returncode != 0, "the server started"
    return done.stderr
