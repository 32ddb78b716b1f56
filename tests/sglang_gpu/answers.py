"""Requests to a running server, and what its answers say about themselves."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

START_LIMIT_S = float(os.environ.get("DDTREE_START_SECONDS", "420"))
ANSWER_LIMIT_S = 120


@dataclass(frozen=True)
class Server:
    name: str
    url: str
    log: Path

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=60, trust_env=False)

    def post(self, path: str, body: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=ANSWER_LIMIT_S, trust_env=False)

    def generate(self, prompt: Sequence[int], tokens: int, **sampling: Any) -> dict[str, Any]:
        response = self.post("/generate", generation(prompt, tokens, **sampling))
        assert response.status_code == 200, f"{self.name}: {response.text}"
        answer: dict[str, Any] = response.json()
        return answer

    def outputs(
        self, prompts: Sequence[Sequence[int]], tokens: int, together: int = 1, **sampling: Any
    ) -> Outputs:
        """The greedy tokens after each prompt, `together` requests at a time."""
        with ThreadPoolExecutor(together) as pool:
            answers = pool.map(lambda prompt: self.generate(prompt, tokens, **sampling), prompts)
            return [answer["output_ids"] for answer in answers]

    def draws(self, prompt: Sequence[int], tokens: int, count: int, **sampling: Any) -> Outputs:
        """`count` answers to one prompt, asked in one request."""
        body = generation(prompt, tokens, **sampling)
        body["input_ids"] = [list(prompt)] * count
        response = self.post("/generate", body)
        assert response.status_code == 200, f"{self.name}: {response.text}"
        return [answer["output_ids"] for answer in response.json()]

    def chunks(self, prompt: Sequence[int], tokens: int, **sampling: Any) -> Iterator[Any]:
        """The answer as it grows."""
        body = {**generation(prompt, tokens, **sampling), "stream": True}
        stream = httpx.stream(
            "POST", f"{self.url}/generate", json=body, timeout=ANSWER_LIMIT_S, trust_env=False
        )
        with stream as response:
            assert response.status_code == 200
            for line in response.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line[6:])

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = self.get("/metrics").text.splitlines()
        found = [line for line in lines if line.startswith((name + "{", name + " "))]
        assert found, f"{self.name} has no metric {name}"
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)


Outputs = list[list[int]]


def generation(prompt: Sequence[int], tokens: int, **sampling: Any) -> dict[str, Any]:
    parameters = {"temperature": 0, "max_new_tokens": tokens, **sampling}
    return {"input_ids": list(prompt), "sampling_params": parameters}


def ready(folder: Path, name: str) -> Server:
    """The server of that name, once it answers; AssertionError with its log's end otherwise."""
    found = json.loads((folder / f"{name}.json").read_text())
    server = Server(name, found["url"], Path(found["log"]))
    limit = time.monotonic() + START_LIMIT_S
    while time.monotonic() < limit:
        if not _alive(found["pid"]):
            break
        try:
            if server.get("/health").status_code == 200:
                return server
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    end = server.log.read_text(errors="replace")[-5000:]
    raise AssertionError(f"{name} did not become healthy; its log ends:\n{end}")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
