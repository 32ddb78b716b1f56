"""The client on the real lab server: each method, and streams that add up to the whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ddtree_ops_cli.engine_api.acceptance import Acceptance
from ddtree_ops_cli.engine_api.client import EngineClient
from ddtree_ops_cli.errors import DdtreeError, Unhealthy
from tests.lab.random_pair import write_random_pair
from tests.lab_server import Process, lab_process


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, EngineClient]]:
    directory = tmp_path_factory.mktemp("lab")
    target, drafter = write_random_pair(directory)
    flags = ["--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", str(drafter)]
    with (
        lab_process(target, *flags, log=directory / "log") as process,
        EngineClient(process.url) as client,
    ):
        yield process, client


@pytest.fixture
def engine(lab: tuple[Process, EngineClient]) -> EngineClient:
    return lab[1]


def test_a_streamed_chat_adds_up_to_the_whole_one(engine: EngineClient) -> None:
    whole = engine.chat("Tell me about rain.", model="lab", max_tokens=64)
    chunks = list(engine.chat_stream("Tell me about rain.", model="lab", max_tokens=64))

    assert "".join(chunk.text for chunk in chunks) == whole.text
    counts = [chunk.completion_tokens for chunk in chunks if chunk.completion_tokens is not None]
    assert counts == sorted(counts)
    assert counts[-1] == whole.completion_tokens == len(whole.token_ids)
    assert chunks[-1].prompt_tokens == whole.prompt_tokens == len(whole.prompt_token_ids)
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["length"]


def test_a_streamed_generate_adds_up_to_the_whole_one(engine: EngineClient) -> None:
    whole = engine.generate([5, 6, 7], max_new_tokens=64)
    chunks = list(engine.generate_stream([5, 6, 7], max_new_tokens=64))

    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert chunks[-1].completion_tokens == whole.completion_tokens
    assert Acceptance.of(chunks[-1].meta) == Acceptance.of(whole.meta)


def test_the_chat_is_the_generation_after_its_template(engine: EngineClient) -> None:
    chat = engine.chat("Hi", model="lab", max_tokens=24)
    raw = engine.generate(chat.prompt_token_ids, max_new_tokens=24)

    assert chat.token_ids == raw.token_ids


def test_counter_deltas_agree_with_the_figures_of_the_answers(engine: EngineClient) -> None:
    names = (
        "sglang:generation_tokens_total",
        "sglang:spec_verify_calls_total",
        "sglang:spec_off_spine_drafts_total",
    )
    before = [engine.metrics().total(name) or 0 for name in names]
    answers = [engine.chat(text, model="lab", max_tokens=40) for text in ("one", "two", "three")]
    after = [engine.metrics().total(name) or 0 for name in names]

    parts = [Acceptance.of(answer.meta) for answer in answers]
    assert [new - old for old, new in zip(before, after, strict=True)] == [
        sum(answer.completion_tokens for answer in answers),
        sum(part.verify_steps for part in parts if part),
        sum(part.off_spine or 0 for part in parts if part),
    ]


def test_identity_and_readiness(engine: EngineClient) -> None:
    assert engine.health().ready
    assert engine.health_generate().ready
    assert [model.id for model in engine.models()] == ["lab"]
    assert engine.models()[0].context_length == engine.server_info().arguments["context_length"]
    assert engine.server_info().speculative_algorithm == "DDTREE"
    assert engine.flush_cache()


def test_a_prompt_beyond_the_context_is_refused_in_one_line(engine: EngineClient) -> None:
    with pytest.raises(DdtreeError, match=r"/generate: 400 Bad Request: the prompt of 3000 tok"):
        engine.generate([5] * 3000, max_new_tokens=1)
    with pytest.raises(DdtreeError, match="400 Bad Request: "):
        list(engine.chat_stream("x" * 9000, model="lab", max_tokens=8))


def test_a_server_that_dies_in_mid_stream_is_unhealthy(tmp_path: Path) -> None:
    target, _ = write_random_pair(tmp_path)
    with (
        lab_process(target, log=tmp_path / "log") as process,
        EngineClient(process.url) as engine,
    ):
        chunks = engine.chat_stream("x", model="lab", max_tokens=1500)
        assert next(chunks).text == ""
        process.popen.kill()
        with pytest.raises(Unhealthy, match="/v1/chat/completions: no answer: "):
            list(chunks)
