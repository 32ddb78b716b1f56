"""What tests of the lab server share: an engine whose tokens they choose, and a client."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx

from ddtree_ops_cli.lab.tokenizer import Tokenizer
from tests.lab.random_pair import IM_END
from tests.lab_server import PATIENCE_S, Served


class Script:
    """Follows any prompt with the tokens of `text`, then with the end of the turn."""

    def __init__(self, tokenizer: Tokenizer, text: str) -> None:
        self.tokens = [*tokenizer.encode(text), IM_END]
        self.length: int | None = None

    def __call__(self, sequence: Sequence[int]) -> int:
        if self.length is None or self.length > len(sequence):
            self.length = len(sequence)
        return self.tokens[min(len(sequence) - self.length, len(self.tokens) - 1)]


class Client:
    def __init__(self, server: Served) -> None:
        self.http = httpx.Client(base_url=server.url, timeout=PATIENCE_S, trust_env=False)

    def generate(self, **body: Any) -> Any:
        return self.post("/generate", {"text": "Hi", **body})

    def post(self, path: str, body: Any) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def events(self, path: str, body: Any) -> list[Any]:
        text = self.http.post(path, json=body | {"stream": True}).text
        lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
        assert lines[-1] == "[DONE]"
        return [json.loads(line) for line in lines[:-1]]
