"""Some minutes of everything at once: no request is lost, none is answered wrongly."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sglang_gpu.answers import Outputs, Server
from tests.sglang_gpu.fleet import FLEET, linear_of, on
from tests.sglang_gpu.judge import TIE, compared
from tests.sglang_gpu.questions import Prompt, drawn, suite

Serve = Callable[[str], Server]
Note = Callable[..., None]

SECONDS = float(os.environ.get("DDTREE_LOAD_SECONDS", "120"))
NAMES = ["tree-15-bf16", "tree-17-bf16", "tree-32-bf16", "tree-64-bf16", "tree-16-bf16-as-shipped"]
CLIENTS = 12
"""More than the server runs at once, so that requests wait and join batches at any time."""


def load(
    server: Server, until: float, seed: int
) -> tuple[list[tuple[Prompt, list[int]]], Counter[str]]:
    """Requests of one client: their greedy answers, and how all of them ended."""
    chance = random.Random(seed)
    prompts = [*suite(), *drawn(24, seed=5)]
    answers, ends = [], Counter[str]()
    while time.monotonic() < until:
        prompt = chance.choice(prompts)
        if chance.random() < 0.3:
            # A long prompt is read in chunks between the steps of others.
            prompt = [*chance.choice(prompts), *chance.choice(prompts)] * 6 + prompt
        kind = chance.random()
        tokens = chance.choice((4, 30, 90, 250))
        if kind < 0.15:
            chunks = server.chunks(prompt, tokens, ignore_eos=True)
            for _, _chunk in zip(range(3), chunks, strict=False):
                pass
            chunks.close()
            ends["aborted"] += 1
            continue
        if kind < 0.35:
            answer = server.generate(prompt, tokens, temperature=1.0, top_p=0.9)
            ends["sampled"] += 1
        elif kind < 0.45:
            answer = server.generate(prompt, 30, regex="[0-9]{3,12}")
            assert answer["text"].isdigit()
            ends["constrained"] += 1
        else:
            answer = server.generate(prompt, tokens)
            answers.append((prompt, answer["output_ids"]))
            ends["greedy"] += 1
        reason = answer["meta_info"]["finish_reason"]["type"]
        assert reason in ("stop", "length")
        assert len(answer["output_ids"]) == answer["meta_info"]["completion_tokens"]
    return answers, ends


@pytest.mark.parametrize("name", on(*NAMES))
def test_no_request_is_lost_or_wrong_under_mixed_load(name: str, server: Serve, note: Note) -> None:
    running = server(name)
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(load, running, until, seed) for seed in range(CLIENTS)]
        results = [client.result() for client in clients]
    ends = sum((found for _, found in results), Counter[str]())
    answers = [answer for found, _ in results for answer in found]
    # The chain's server answers the same prompts one by one.
    linear = server(linear_of(name))
    random.Random(0).shuffle(answers)
    checked = answers[:120]
    with ThreadPoolExecutor(4) as pool:
        said = pool.map(lambda one: linear.generate(one[0], len(one[1])), checked)
        reference: Outputs = [answer["output_ids"] for answer in said]
    verdict = compared(
        [prompt for prompt, _ in checked], [tokens for _, tokens in checked], reference
    )
    note(server=name, seconds=SECONDS, ends=dict(ends), verdict=str(verdict))
    assert ends["greedy"] > 50
    assert verdict.worst <= TIE[FLEET[name].dtype], verdict
    assert running.get("/health_generate").status_code == 200
    assert running.metric("sglang:num_running_reqs") == 0
