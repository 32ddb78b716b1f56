"""A profile is taken while an answer runs, and read once the server has written it whole."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ddtree_ops_cli.bench.answer import Arm
from ddtree_ops_cli.engine_api.answers import Chunk
from ddtree_ops_cli.engine_api.client import EngineClient
from ddtree_ops_cli.errors import DdtreeError
from tests.bench_gpu.test_trace import event, trace
from tools.bench_gpu.profile import profile_server


class Talking(EngineClient):
    """Its answers are made up; what it is asked over HTTP is real."""

    chunks = 200

    def chat_stream(self, *_: Any, **__: Any) -> Iterator[Chunk]:
        for number in range(self.chunks):
            time.sleep(0.01)
            yield Chunk("d", number + 1, time.perf_counter())


@contextmanager
def profiler(events: list[dict[str, Any]], asked: list[Any]) -> Iterator[str]:
    """Answers /start_profile, and writes the trace in two halves with a pause between them."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append((self.path, body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()
            whole = gzip.compress(json.dumps({"traceEvents": events}).encode())
            file = Path(body["output_dir"]) / "1-TP-0.trace.json.gz"
            file.write_bytes(whole[: len(whole) // 2])
            threading.Timer(1.0, file.write_bytes, [whole]).start()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_trace_of_a_running_answer_is_read_and_removed(tmp_path: Path) -> None:
    asked: list[Any] = []
    with profiler(trace(20), asked) as url, Talking(url) as engine:
        arm = Arm("tree", "tree-16", engine, "27b")
        found = profile_server(arm, tmp_path / "trace", steps=20, most_tokens=9, limit_s=30)
    assert found.step_ms == pytest.approx(1.0)
    ((path, body),) = asked
    assert path == "/start_profile"
    assert (body["num_steps"], body["activities"]) == (20, ["CPU", "GPU"])
    assert list((tmp_path / "trace").iterdir()) == []


def test_a_trace_of_nothing_on_the_device_says_so(tmp_path: Path) -> None:
    idle = [event("aten::mm", 0, 5, "cpu_op")]
    with profiler(idle, []) as url, Talking(url) as engine:
        arm = Arm("tree", "tree-16", engine, "27b")
        with pytest.raises(DdtreeError, match="no device work"):
            profile_server(arm, tmp_path, steps=20, most_tokens=9, limit_s=30)


def test_an_answer_that_is_over_at_once_cannot_be_profiled(tmp_path: Path) -> None:
    with profiler([], []) as url, Talking(url) as engine:
        engine.chunks = 2
        arm = Arm("tree", "tree-16", engine, "27b")
        with pytest.raises(DdtreeError, match="tree-16: no answer ran that could be profiled"):
            profile_server(arm, tmp_path, steps=20, most_tokens=9, limit_s=30)
