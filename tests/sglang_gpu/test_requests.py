"""What a request may ask: stop strings, grammars, penalties, to be left alone."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sglang_gpu.answers import Server
from tests.sglang_gpu.fleet import linear_of, on
from tests.sglang_gpu.questions import suite

Serve = Callable[[str], Server]

TREES = on("tree-8-bf16", "tree-16-bf16", "tree-64-bf16", "tree-16-bf16-as-shipped")


@pytest.mark.parametrize("name", TREES)
def test_a_stop_string_ends_the_text_where_it_ends_the_chains(name: str, server: Serve) -> None:
    linear = server(linear_of(name))
    for prompt in suite()[:8]:
        whole = linear.generate(prompt, 60)["text"]
        words = [word for word in re.findall(r"\w+", whole) if len(word) > 2]
        if len(words) < 4:
            continue
        stop = words[len(words) // 2]
        texts = [one.generate(prompt, 60, stop=[stop]) for one in (server(name), linear)]
        assert texts[0]["meta_info"]["finish_reason"]["type"] == "stop"
        assert stop not in texts[0]["text"]
        assert texts[0]["text"] == texts[1]["text"]


@pytest.mark.parametrize("name", TREES)
def test_grammars_hold_at_every_node(name: str, server: Serve) -> None:
    running = server(name)
    linear = server(linear_of(name))
    numbers = "[0-9]{6}-[a-f]{4}"
    record = r'\{"count": [0-9]{1,3}, "right": (true|false), "why": "[a-z ]{8,40}"\}'

    def constrained(one: Server, prompt: list[int]) -> list[str]:
        return [one.generate(prompt, 80, regex=regex)["text"] for regex in (numbers, record)]

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda prompt: constrained(running, prompt), suite()[:6]))
    same = 0
    for prompt, (digits, text) in zip(suite()[:6], answers, strict=True):
        assert re.fullmatch(numbers, digits), digits
        assert set(json.loads(text)) == {"count", "right", "why"}, text
        same += [digits, text] == constrained(linear, prompt)
    assert same >= 4, "constrained greedy answers are the chain's, near-ties aside"


@pytest.mark.xdist_group("tree-16-bf16")
def test_what_the_tree_cannot_do_is_refused(server: Serve) -> None:
    running = server("tree-16-bf16")
    for option, value in (
        ("frequency_penalty", 0.5),
        ("presence_penalty", 0.5),
        ("repetition_penalty", 1.2),
        ("min_new_tokens", 4),
        ("min_p", 0.2),
    ):
        body = {
            "input_ids": suite()[0],
            "sampling_params": {"temperature": 0, "max_new_tokens": 4, option: value},
        }
        response = running.post("/generate", body)
        assert response.status_code == 400, option
        assert "DDTREE" in response.text
        assert option in response.text
    assert running.generate(suite()[0], 4)["output_ids"]


@pytest.mark.parametrize("name", on("tree-24-bf16", "tree-48-bf16"))
def test_an_abort_in_mid_stream_leaves_the_others_alone(name: str, server: Serve) -> None:
    running = server(name)
    alone = [running.generate(prompt, 120, ignore_eos=True)["output_ids"] for prompt in suite()[:4]]

    def leave_early(prompt: list[int]) -> int:
        seen = 0
        for _ in running.chunks(prompt, 2000, ignore_eos=True):
            seen += 1
            if seen == 5:
                break
        return seen

    with ThreadPoolExecutor(8) as pool:
        leaving = [pool.submit(leave_early, prompt) for prompt in suite()[4:8]]
        staying = [
            pool.submit(running.generate, prompt, 120, ignore_eos=True) for prompt in suite()[:4]
        ]
        assert [one.result() for one in leaving] == [5] * 4
        together = [one.result()["output_ids"] for one in staying]
    assert [len(answer) for answer in together] == [120] * 4
    limit = time.monotonic() + 20
    while running.metric("sglang:num_running_reqs") > 0:
        assert time.monotonic() < limit, "aborted requests still run"
        time.sleep(0.2)
    assert [
        running.generate(prompt, 120, ignore_eos=True)["output_ids"] for prompt in suite()[:4]
    ] == alone
