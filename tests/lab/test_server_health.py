"""What the lab server says of its own health, and how it survives a fault."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ddtree_ops_cli.lab.tokenizer import Tokenizer
from tests.lab.scripted_server import Client, Script
from tests.lab_server import ScriptedEngine, served, until


def test_a_fault_of_the_engine_is_a_500_and_the_next_request_is_served(scripted: Any) -> None:
    faults = [ArithmeticError("lost a state")]

    def fail() -> None:
        if faults:
            raise faults.pop()

    client, _ = scripted(may_step=fail)

    failed = client.http.post("/v1/completions", json={"prompt": "x"})

    assert failed.status_code == 500
    assert "ArithmeticError: lost a state" in failed.json()["message"]
    assert client.generate()["text"] == "one two three"


def test_the_server_is_not_ready_while_the_model_loads(
    directory: Path, tokenizer: Tokenizer
) -> None:
    engine = ScriptedEngine(Script(tokenizer, "x"))
    with served(engine, directory, loading=True) as server, Client(server).http as http:
        loading = [http.get(path).status_code for path in ("/health", "/health_generate")]
        refused = http.post("/generate", json={"text": "x"})
        server.finish_loading.set()
        until(lambda: http.get("/health").status_code == 200)

        assert loading == [503, 503]
        assert refused.status_code == 503
        assert engine.emitted == 0
        assert http.get("/health_generate").status_code == 200
        assert engine.emitted > 0


def test_a_probe_leaves_no_trace_in_the_counts(scripted: Any) -> None:
    client, _ = scripted()

    client.http.get("/health_generate")

    assert "nan" not in client.http.get("/metrics").text
    assert 'num_requests_total{model_name="lab",engine_type="unified",is_streaming="false"} 0' in (
        client.http.get("/metrics").text
    )


def test_an_engine_that_fails_is_not_healthy(scripted: Any) -> None:
    def fail() -> None:
        raise ArithmeticError

    client, _ = scripted(may_step=fail)

    assert client.http.get("/health_generate").status_code == 503


def test_a_busy_engine_is_healthy_without_a_probe_of_its_own(scripted: Any) -> None:
    gate = threading.Semaphore(0)
    client, engine = scripted("x" * 500, may_step=gate.acquire, tokens_per_step=1)

    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(client.generate, sampling_params={"max_new_tokens": 500})
        until(lambda: len(engine.asked) == 1)
        probe = pool.submit(client.http.get, "/health_generate")
        while not probe.done():
            gate.release()
            time.sleep(0.001)
        assert probe.result().status_code == 200
        assert len(engine.asked) == 1
        gate.release(1000)
        running.result()
