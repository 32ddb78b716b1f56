"""Requests of the lab server that wait, run, and are left by their clients."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from ddtree_ops_cli.lab.answer import Snapshot
from ddtree_ops_cli.lab.asks import Ask
from ddtree_ops_cli.lab.decode import Sampling
from ddtree_ops_cli.lab.scheduler import Job
from ddtree_ops_cli.lab.tokenizer import Tokenizer
from tests.lab.scripted_server import Client, Script
from tests.lab_server import ScriptedEngine, served, until


def test_requests_wait_their_turn(scripted: Any) -> None:
    gate = threading.Semaphore(0)
    client, engine = scripted("abcdef", may_step=gate.acquire)

    with ThreadPoolExecutor(3) as pool:
        futures = []
        for number in range(3):
            futures.append(pool.submit(client.generate, input_ids=[number + 1], text=None))
            until(partial(queue_holds, client, number + 1))
        until(lambda: len(engine.asked) == 1)
        gate.release(1000)
        answers = [future.result() for future in futures]

    assert [prompt for prompt, _ in engine.asked] == [(1,), (2,), (3,)]
    assert {answer["text"] for answer in answers} == {"abcdef"}


def queue_holds(client: Client, requests: int) -> bool:
    return running_and_waiting(client) == requests


def running_and_waiting(client: Client) -> int:
    text = client.http.get("/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("sglang:num_")]
    return sum(int(line.split()[-1]) for line in lines if "running" in line or "queue" in line)


def aborted(client: Client) -> int:
    text = client.http.get("/metrics").text
    (line,) = [one for one in text.splitlines() if one.startswith("sglang:num_aborted")]
    return int(line.split()[-1])


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_takes_its_request_along(scripted: Any, stream: bool) -> None:
    gate = threading.Semaphore(2)
    client, engine = scripted("x" * 200, may_step=gate.acquire)

    with (
        httpx.Client(base_url=str(client.http.base_url), trust_env=False) as leaving,
        pytest.raises(httpx.ReadTimeout),
    ):
        leaving.post("/generate", json={"text": "Hi", "stream": stream}, timeout=0.3)
    until(lambda: aborted(client) == 1)
    gate.release(1000)
    until(lambda: running_and_waiting(client) == 0)

    assert engine.emitted < 20
    assert client.generate(sampling_params={"max_new_tokens": 1})["output_ids"]


def test_a_client_that_leaves_the_queue_is_never_run(scripted: Any) -> None:
    gate = threading.Semaphore(0)
    client, engine = scripted(may_step=gate.acquire)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.generate)
        until(lambda: len(engine.asked) == 1)
        with pytest.raises(httpx.ReadTimeout):
            client.http.post(
                "/v1/completions", json={"prompt": "later", "stream": True}, timeout=0.3
            )
        until(lambda: aborted(client) == 1)
        gate.release(1000)
        first.result()
    client.generate()

    assert len(engine.asked) == 2


def test_the_cache_is_not_flushed_while_a_request_runs(scripted: Any) -> None:
    gate = threading.Semaphore(0)
    client, engine = scripted(may_step=gate.acquire)

    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(client.generate)
        until(lambda: len(engine.asked) == 1)
        assert client.http.post("/flush_cache").status_code == 400
        assert client.http.post("/flush_cache?timeout=0.05").status_code == 400
        patient = pool.submit(client.http.post, "/flush_cache?timeout=20")
        gate.release(1000)
        running.result()
        assert patient.result().status_code == 200
    assert client.http.get("/flush_cache").status_code == 200


def test_the_engine_is_idle_before_its_answer_is_out(directory: Path, tokenizer: Tokenizer) -> None:
    ask = Ask((1, 2), Sampling(max_new_tokens=5), (), trims_stop=True, skips_special_tokens=True)
    with served(ScriptedEngine(Script(tokenizer, "x" * 9)), directory) as server:
        flushed: list[tuple[bool, bool]] = []

        def deliver(snapshot: Snapshot) -> None:
            flushed.append((snapshot.finish is not None, server.scheduler.flush()))

        server.scheduler.submit(Job("a", ask, deliver, streams=True))
        until(lambda: bool(flushed) and flushed[-1][0])

    assert flushed == [(False, False), (False, False), (True, True)]
