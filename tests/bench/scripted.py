"""A real HTTP server that plays an engine of known speed, in a thread or as a program.

It keeps a clock of its own: every event says when, on that clock, it was sent, and no test has to
sleep or to trust a loaded machine. `ScriptedClient` reads those times in place of the real ones.
As a program it takes an engine's flags, so that a runtime can start it.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ddtree_ops_cli.engine_api.client import EngineClient


@dataclass
class VirtualClock:
    """Shared by the servers of a test, whose requests come one after the other."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Engine:
    """What it serves and how fast; times in seconds on its clock."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    model: str = "lab-pair"
    model_path: str = "/models/target"
    chunks: tuple[int, ...] = (1, 4, 4, 4, 4)
    """Tokens of each event; the first comes with the prefill."""
    prefill_s: float = 0.05
    step_s: Callable[[], float] = lambda: 0.02
    """Asked once per request: seconds between two events."""
    prompt_tokens: int = 12
    words: Callable[[str], list[str]] = lambda prompt: [f" {prompt[:1]}{i}" for i in range(99)]
    last_has_no_text: bool = False
    """The last token is an end-of-sequence token: it arrives with the reason of the end."""
    counts_along: bool = True
    drafts: bool = True
    off_spine: int = 3
    """Per request."""
    cached_tokens: int = 0
    running: int = 0
    """Requests of others that run all the time."""
    strangers: Callable[[], int] = lambda: 0
    """Asked once per request: requests of others that end meanwhile."""
    dies_at: int | None = None
    """The number of the request that breaks off, and after which nobody answers."""
    real_pause_s: float = 0.0
    """Real seconds between two events, for tests that interrupt."""
    base_url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of the chat requests so far."""
    flushes: int = 0
    requests: int = 0
    tokens: int = 0
    verify_steps: int = 0
    dead: bool = False

    @property
    def answer_tokens(self) -> int:
        return sum(self.chunks) + self.last_has_no_text

    def ended(self) -> None:
        others = self.strangers()
        self.requests += 1 + others
        self.tokens += self.answer_tokens + 10 * others
        self.verify_steps += len(self.chunks) - 1 + self.last_has_no_text

    def metrics(self) -> str:
        lines = [f'sglang:num_running_reqs{{model_name="m"}} {self.running}']
        if self.requests:
            lines += [
                f'sglang:num_requests_total{{is_streaming="true"}} {self.requests}',
                f'sglang:generation_tokens_total{{is_streaming="true"}} {self.tokens}',
                f"sglang:cached_tokens_total {self.cached_tokens * self.requests}",
            ]
        if self.drafts and self.requests:
            lines += [
                f"sglang:spec_verify_calls_total {self.verify_steps}",
                f"sglang:spec_off_spine_drafts_total {self.off_spine * self.requests}",
            ]
        return "\n".join(lines) + "\n"

    def whole(self, prompt: str) -> dict[str, Any]:
        steps = len(self.chunks) - 1 + self.last_has_no_text
        figures = {
            "spec_verify_ct": steps,
            "spec_num_correct_drafts": self.answer_tokens - 1 - steps,
            "spec_num_proposed_drafts": 15 * steps,
            "spec_num_off_spine_drafts": self.off_spine,
        }
        said = "".join(self.words(prompt)[: sum(self.chunks)])
        return {
            "model": self.model,
            "choices": [
                {
                    "message": {"role": "assistant", "content": said},
                    "finish_reason": "stop",
                    "token_ids": [hash(word) % 1000 for word in said.split()],
                    "meta_info": figures if self.drafts else {},
                }
            ],
            "usage": self._usage(self.answer_tokens),
        }

    def events(self, prompt: str) -> Iterator[dict[str, Any]]:
        words, said = self.words(prompt), 0
        step = self.step_s()
        self.clock.now += self.prefill_s
        yield {"choices": [{"delta": {"role": "assistant", "content": ""}}], "at": self.clock.now}
        for number, size in enumerate(self.chunks):
            if number:
                self.clock.now += step
            piece = "".join(words[said : said + size])
            said += size
            event = {"choices": [{"delta": {"content": piece}}], "at": self.clock.now}
            yield event | ({"usage": self._usage(said)} if self.counts_along else {})
            time.sleep(self.real_pause_s)
        if self.last_has_no_text:
            self.clock.now += step
        yield {"choices": [{"delta": {}, "finish_reason": "stop"}], "at": self.clock.now}
        yield {"choices": [], "usage": self._usage(self.answer_tokens), "at": self.clock.now}

    def _usage(self, tokens: int) -> dict[str, int]:
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": tokens}


class ScriptedClient(EngineClient):
    """The real client, with the arrival times of the script."""

    def _events(self, endpoint: str, body: dict[str, Any]) -> Iterator[tuple[str, float]]:
        for event, _ in super()._events(endpoint, body):
            yield event, json.loads(event)["at"]


@contextmanager
def serving(engine: Engine, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[Engine]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self.send(engine.metrics().encode())
            elif path == "/v1/models":
                self.send_json({"data": [{"id": engine.model, "max_model_len": 2048}]})
            elif path == "/server_info":
                self.send_json({"version": "scripted", "model_path": engine.model_path})
            elif path in ("/health", "/health_generate"):
                self.send(b"")
            else:
                self.send_json({"detail": "Not Found"}, status=404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"] or 0)) or "null")
            if self.path.startswith("/flush_cache"):
                engine.flushes += 1
                self.send(b"", status=400 if engine.running else 200)
                return
            engine.asked.append(body)
            prompt = body["messages"][-1]["content"]
            if engine.dies_at is not None and len(engine.asked) >= engine.dies_at:
                engine.dead = True
            if engine.dead:
                self.close_connection = True
                return
            if not body.get("stream"):
                engine.ended()
                self.send_json(engine.whole(prompt))
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for event in engine.events(prompt):
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
            engine.ended()
            self.wfile.write(b"data: [DONE]\n\n")

        def send_json(self, body: Any, status: int = 200) -> None:
            self.send(json.dumps(body).encode(), status)

        def send(self, content: bytes, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer((host, port), Handler)
    engine.base_url = f"http://{host}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield engine
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main() -> None:
    """Serve until killed. `--script` is the JSON of an Engine's plain fields, from a test."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", default="lab-pair")
    parser.add_argument("--script", default="{}")
    flags, _ = parser.parse_known_args()
    engine = Engine(model=flags.served_model_name, **json.loads(flags.script))
    with serving(engine, host=flags.host, port=flags.port):
        threading.Event().wait()


if __name__ == "__main__":
    main()
