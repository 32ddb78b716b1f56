"""Some minutes of everything at once: no request is lost, none is answered wrongly."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from tests.sglang_gpu.answers import Server
from tests.sglang_gpu.fleet import FLEET, linear_of, on
from tests.sglang_gpu.judge import TIE, compared
from tests.sglang_gpu.questions import Prompt, drawn, suite
from tests.sglang_gpu.test_reuse import FOLLOW_UPS, follow_up

Serve = Callable[[str], Server]
Note = Callable[..., None]

SECONDS = float(os.environ.get("DDTREE_LOAD_SECONDS", "120"))
NAMES = ["tree-15-bf16", "tree-24-bf16", "tree-48-bf16", "tree-64-bf16-as-shipped", "tree-17-f32"]
CLIENTS = 12
"""More than the server runs at once, so that requests wait and join batches at any time."""
LENGTHS = (4, 30, 90, 250)


@cache
def prompts() -> list[Prompt]:
    """Short ones, and long ones that are read in chunks between the steps of others."""
    short = [*suite(), *drawn(24, seed=5)]
    chance = random.Random(0)
    long = [[*chance.choice(short), *chance.choice(short)] * 6 + one for one in short[:16]]
    return [*short, *long]


@dataclass
class Client:
    """Asks one thing after the other; keeps its greedy answers and how everything ended."""

    server: Server
    seed: int
    greedy: list[tuple[Prompt, int, list[int]]] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)

    def run(self, until: float) -> Client:
        chance = random.Random(self.seed)
        while time.monotonic() < until:
            prompt, tokens = chance.choice(prompts()), chance.choice(LENGTHS)
            kind = chance.random()
            if kind < 0.15:
                self._leave(prompt, tokens)
            elif kind < 0.35:
                self._ask("sampled", prompt, tokens, temperature=1.0, top_p=0.9)
            elif kind < 0.45:
                text = self._ask("constrained", prompt, 30, regex="[0-9]{3,12}")["text"]
                assert text.isdigit(), text
            elif kind < 0.6:
                # The second turn begins on states that were kept while others decoded.
                said = self._greedy("greedy", prompt, max(LENGTHS))
                text = chance.choice(FOLLOW_UPS)
                self._greedy("second turn", follow_up(prompt, said, text), tokens)
            else:
                self._greedy("greedy", prompt, tokens)
        return self

    def _ask(self, end: str, prompt: Prompt, tokens: int, **sampling: Any) -> dict[str, Any]:
        answer = self.server.generate(prompt, tokens, **sampling)
        meta = answer["meta_info"]
        assert meta["finish_reason"]["type"] in ("stop", "length"), meta
        assert len(answer["output_ids"]) == meta["completion_tokens"], meta
        self.ends[end] += 1
        return answer

    def _greedy(self, end: str, prompt: Prompt, tokens: int) -> list[int]:
        said: list[int] = self._ask(end, prompt, tokens)["output_ids"]
        self.greedy.append((prompt, tokens, said))
        return said

    def _leave(self, prompt: Prompt, tokens: int) -> None:
        chunks = self.server.chunks(prompt, tokens, ignore_eos=True)
        for _, _chunk in zip(range(3), chunks, strict=False):
            pass
        chunks.close()
        self.ends["aborted"] += 1


@pytest.mark.parametrize("name", on(*NAMES))
def test_no_request_is_lost_or_wrong_under_mixed_load(name: str, server: Serve, note: Note) -> None:
    running, linear = server(name), server(linear_of(name))
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = list(pool.map(lambda seed: Client(running, seed).run(until), range(CLIENTS)))
    ends = sum((client.ends for client in clients), Counter[str]())
    answers = [answer for client in clients for answer in client.greedy]
    # A shorter answer is the beginning of the longest.
    asked = [list(prompt) for prompt in {tuple(prompt) for prompt, _, _ in answers}]
    said = linear.outputs(asked, max(LENGTHS), together=8)
    reference = {tuple(prompt): answer for prompt, answer in zip(asked, said, strict=True)}
    verdict = compared(
        [prompt for prompt, _, _ in answers],
        [mine for _, _, mine in answers],
        [reference[tuple(prompt)][:tokens] for prompt, tokens, _ in answers],
    )
    note(server=name, seconds=SECONDS, ends=dict(ends), prompts=len(asked), verdict=str(verdict))
    assert ends["greedy"] > 50
    assert ends["second turn"] > 10
    assert verdict.worst <= TIE[FLEET[name].dtype], verdict
    assert running.get("/health_generate").status_code == 200
    assert running.metric("sglang:num_running_reqs") == 0
