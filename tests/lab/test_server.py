"""The lab server over real HTTP, on an engine whose tokens the tests choose."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
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
from tests.lab.random_pair import IM_END, write_random_pair
from tests.lab_server import PATIENCE_S, ScriptedEngine, Served, served, until


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_pair(tmp_path_factory.mktemp("pair"))[0]


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.load(directory)


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


@pytest.fixture
def scripted(directory: Path, tokenizer: Tokenizer) -> Iterator[Any]:
    """Start a server that writes the given text; returns the client and the engine."""
    opened: list[Any] = []

    def start(text: str = "one two three", **options: Any) -> tuple[Client, ScriptedEngine]:
        engine = ScriptedEngine(
            Script(tokenizer, text), eos_token_ids=frozenset({IM_END}), **options
        )
        context = served(engine, directory)
        opened.append(context)
        client = Client(context.__enter__())
        opened.append(client.http)
        return client, engine

    yield start
    for context in reversed(opened):
        context.__exit__(None, None, None)


def test_an_answer_ends_at_the_end_of_the_turn_and_leaves_it_out_of_the_text(scripted: Any) -> None:
    client, _ = scripted()

    answer = client.generate()

    assert answer["text"] == "one two three"
    assert answer["output_ids"][-1] == IM_END
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": IM_END}
    assert answer["meta_info"]["completion_tokens"] == len(answer["output_ids"])


def test_an_answer_ends_at_the_limit_within_a_step(scripted: Any) -> None:
    client, _ = scripted(tokens_per_step=5)

    answer = client.generate(sampling_params={"max_new_tokens": 3})

    assert len(answer["output_ids"]) == 3
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 3}


def test_a_limit_of_zero_gives_an_empty_answer(scripted: Any) -> None:
    client, engine = scripted()

    answer = client.generate(sampling_params={"max_new_tokens": 0})

    assert (answer["text"], answer["output_ids"]) == ("", [])
    assert engine.asked == []


def test_ignore_eos_goes_on_to_the_limit(scripted: Any) -> None:
    client, _ = scripted("x")

    answer = client.generate(
        sampling_params={"max_new_tokens": 9, "ignore_eos": True, "stop_token_ids": [IM_END]}
    )

    assert len(answer["output_ids"]) == 9


def test_an_answer_ends_where_the_context_is_full(scripted: Any) -> None:
    client, _ = scripted("x" * 100, context_length=24)

    answer = client.post(
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": None, "input_ids": [1, 2]},
    )

    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 24 - 2 - 2  # the room that SGLang leaves


def test_a_stop_string_ends_the_answer_even_inside_a_step(scripted: Any) -> None:
    client, _ = scripted(tokens_per_step=50)

    answer = client.generate(sampling_params={"stop": ["zzz", " tw"]})
    kept = client.generate(sampling_params={"stop": " tw", "no_stop_trim": True})

    assert answer["text"] == "one"
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": " tw"}
    assert kept["text"] == "one tw"


def test_a_stop_token_of_the_request_ends_the_answer(scripted: Any, tokenizer: Tokenizer) -> None:
    client, _ = scripted("abc")
    (token,) = tokenizer.encode("c")

    answer = client.post(
        "/v1/completions", {"prompt": "x", "stop_token_ids": [token], "temperature": 0}
    )

    assert answer["choices"][0]["text"] == "ab"
    assert answer["choices"][0]["matched_stop"] == token


def test_a_stream_never_shows_the_beginning_of_a_stop_string(scripted: Any) -> None:
    client, _ = scripted("one two", tokens_per_step=1)

    events = client.events(
        "/v1/completions", {"prompt": "x", "stop": "two", "max_tokens": 50, "temperature": 0}
    )

    assert "".join(event["choices"][0]["text"] for event in events) == "one "


def test_what_only_began_like_a_stop_string_is_shown_at_the_end(scripted: Any) -> None:
    client, _ = scripted("one tw", tokens_per_step=1)

    events = client.events("/v1/completions", {"prompt": "x", "stop": "two", "max_tokens": 50})

    assert "".join(event["choices"][0]["text"] for event in events) == "one tw"


def test_a_character_of_several_tokens_is_streamed_whole(scripted: Any) -> None:
    text = "a→é🌳"
    client, _ = scripted(text, tokens_per_step=1)

    events = client.events(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 50}
    )
    pieces = [event["choices"][0]["delta"].get("content") for event in events if event["choices"]]

    assert pieces == ["", "a", "→", "é", "🌳", None]


def test_streamed_generate_repeats_the_text_and_ends_with_the_figures(scripted: Any) -> None:
    client, _ = scripted(off_spine=1)

    events = client.events("/generate", {"text": "Hi"})

    assert events[-1]["text"] == "one two three"
    assert events[0]["meta_info"]["finish_reason"] is None
    assert "spec_verify_ct" not in events[0]["meta_info"]
    assert events[-1]["meta_info"]["spec_verify_ct"] == len(events) - 1


def test_the_figures_of_speculation_are_those_of_sglang(scripted: Any) -> None:
    client, _ = scripted("x" * 6, tokens_per_step=3, off_spine=1)

    meta = client.generate()["meta_info"]

    assert meta["completion_tokens"] == 7  # six and the end of the turn: 1 + 3 + 3
    assert meta["spec_verify_ct"] == 2
    assert meta["spec_num_correct_drafts"] == 4
    assert meta["spec_num_proposed_drafts"] == 32  # budget 16, two steps
    assert meta["spec_accept_rate"] == 4 / 32
    assert meta["spec_accept_length"] == 7 / 2
    assert meta["spec_correct_drafts_histogram"] == [0, 0, 2]
    assert meta["spec_num_off_spine_drafts"] == 2
    assert meta["cached_tokens"] == 0


def test_several_prompts_get_a_list_of_answers(scripted: Any) -> None:
    client, _ = scripted()

    answers = client.post("/generate", {"input_ids": [[1, 2], [3]]})
    alone = client.post("/generate", {"text": ["one"]})

    assert [answer["meta_info"]["prompt_tokens"] for answer in answers] == [2, 1]
    assert len(alone) == 1


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


def test_flushing_forgets_the_average(scripted: Any) -> None:
    client, _ = scripted()
    client.generate()

    before = client.http.get("/server_info").json()["internal_states"][0]
    client.http.post("/flush_cache")
    after = client.http.get("/server_info").json()["internal_states"][0]

    assert before["avg_spec_accept_length"] == 3.0
    assert "avg_spec_accept_length" not in after


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


def test_chat_takes_its_defaults_from_the_generation_config(
    directory: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    for file in directory.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.25, "top_k": 7}')
    engine = ScriptedEngine(Script(tokenizer, "x"), eos_token_ids=frozenset({IM_END}))
    with served(engine, tmp_path) as server, Client(server).http as http:
        chat = {"messages": [{"role": "user", "content": "x"}]}
        http.post("/v1/chat/completions", json=chat)
        http.post("/v1/chat/completions", json=chat | {"temperature": 0, "top_k": 3})
        http.post("/v1/completions", json={"prompt": "x"})

    options = [(sampling.temperature, sampling.top_k) for _, sampling in engine.asked]
    assert options == [(0.25, 7), (0.0, 3), (1.0, -1)]


def test_a_request_that_samples_has_a_seed_of_its_own_or_brings_one(scripted: Any) -> None:
    client, engine = scripted()

    client.generate()
    client.generate()
    client.generate(sampling_params={"sampling_seed": 5})
    client.generate(sampling_params={"temperature": 0})

    first, second, brought, greedy = (sampling.seed for _, sampling in engine.asked)
    assert first is not None
    assert first != second
    assert (brought, greedy) == (5, None)


def test_the_chat_template_is_filled_in(scripted: Any, tokenizer: Tokenizer) -> None:
    client, engine = scripted()

    client.post(
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            ]
        },
    )

    prompt = tokenizer.decode(engine.asked[0][0], skip_special_tokens=False)
    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
