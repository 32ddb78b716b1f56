"""What a benchmark reads, from recorded answers of the real SGLang 0.5.17."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddtree_ops_cli.bench.answer import Arm, Shape, ask_streamed, ask_whole
from ddtree_ops_cli.bench.counters import Counters, read_counters
from ddtree_ops_cli.engine_api.client import EngineClient
from ddtree_ops_cli.errors import Unhealthy
from tests.canned import Reply, canned_server

RECORDED = Path(__file__).parent.parent / "engine_api/recorded_sglang_0.5.17/dflash"
CHAT = "/v1/chat/completions"


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())["response"]["body"]


def test_counters_are_those_of_the_metrics_page() -> None:
    with (
        canned_server({"/metrics": Reply(recorded("metrics"))}) as server,
        EngineClient(server.base_url) as engine,
    ):
        assert read_counters(engine) == Counters(
            requests=9,
            tokens=19,
            verify_steps=10,
            off_spine=None,
            cached_tokens=0,
            running=0,
            queued=0,
        )


def test_a_whole_answer_gives_ids_and_acceptance() -> None:
    answer = recorded("chat_meta_info")
    with (
        canned_server({CHAT: Reply(answer)}) as server,
        EngineClient(server.base_url) as engine,
    ):
        arm = Arm("linear", "linear on GPU 0", engine, "lab-pair")
        twin = ask_whole(arm, "Hi", Shape(3, 0.0), "hi", seed=0)
    meta = answer["choices"][0]["meta_info"]
    assert twin.acceptance is not None
    assert twin.acceptance.verify_steps == meta["spec_verify_ct"]
    assert twin.tokens == answer["usage"]["completion_tokens"]


def test_a_stream_that_counts_only_at_its_end_cannot_be_measured() -> None:
    with (
        canned_server({CHAT: Reply(recorded("chat_stream_usage"))}) as server,
        EngineClient(server.base_url) as engine,
    ):
        arm = Arm("linear", "linear on GPU 0", engine, "lab-pair")
        with pytest.raises(Unhealthy, match="linear on GPU 0: its stream does not count tokens"):
            ask_streamed(arm, "Hi", Shape(3, 0.0), seed=0, clock=lambda: 0.0)
    assert server.requests[0][2]["stream_options"]["continuous_usage_stats"] is True
