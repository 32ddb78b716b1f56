"""The client and the lab server against recorded answers of the real SGLang 0.5.17."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import ddtree_ops_cli.lab
from ddtree_ops_cli.engine_api.answers import Chunk
from ddtree_ops_cli.engine_api.client import EngineClient
from ddtree_ops_cli.errors import DdtreeError
from tests.canned import Reply, canned_server
from tests.lab.random_pair import write_random_pair
from tests.lab_server import lab_process

WEIGHTS = Path(ddtree_ops_cli.lab.__file__).parent / "weights"
RECORDED = Path(__file__).parent / "recorded_sglang_0.5.17"
FILES = sorted(RECORDED.glob("*/*.json"))
NAMES = [f"{file.parent.name}/{file.stem}" for file in FILES]

OTHER_STATUS = {
    # SGLang builds its sampling parameters unchecked, and a TypeError escapes as a bare 500; the
    # lab says what is wrong with the request.
    "generate_unknown_sampling_param": 400,
    "generate_wrong_type": 400,
    # Without speculation SGLang does return log-probabilities; the lab engine never does.
    "plain/generate_return_logprob": 400,
    "plain/chat_logprobs": 400,
    "plain/completions_logprobs": 400,
}
NOT_SERVED = {
    # What an embedding model would do: the lab serves no such model.
    "model_info": {"embedding"},
}
READ_BY_THE_TOOL = {
    "model_path",
    "served_model_name",
    "context_length",
    "random_seed",
    "disable_radix_cache",
    "max_running_requests",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_num_draft_tokens",
    "version",
    "internal_states",
    "max_total_num_tokens",
    "startup_time",
}


def recording(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return found


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], httpx.Client]]:
    """A client of the lab server that runs as the recorded one: `dflash`, `plain`, `trained`,
    `tree`."""
    directory = tmp_path_factory.mktemp("lab")
    target, drafter = write_random_pair(directory)
    flags = ["--context-length", "512", "--served-model-name", "lab-pair"]
    linear = ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", str(drafter)]
    bundled = ["--served-model-name", "lab-pair", "--context-length", "2048", *linear[:3]]
    bundled += [str(WEIGHTS / "drafter")]
    budget = ["--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "16"]
    with (
        lab_process(target, *flags, *linear, log=directory / "dflash.log") as dflash,
        lab_process(target, *flags, log=directory / "plain.log") as plain,
        lab_process(WEIGHTS / "target", *bundled, log=directory / "trained.log") as trained,
        lab_process(WEIGHTS / "target", *bundled, *budget, log=directory / "tree.log") as tree,
        httpx.Client(base_url=dflash.url, timeout=60, trust_env=False) as to_dflash,
        httpx.Client(base_url=plain.url, timeout=60, trust_env=False) as to_plain,
        httpx.Client(base_url=trained.url, timeout=60, trust_env=False) as to_trained,
        httpx.Client(base_url=tree.url, timeout=60, trust_env=False) as to_tree,
    ):
        clients = {"dflash": to_dflash, "plain": to_plain, "trained": to_trained, "tree": to_tree}
        yield clients.__getitem__


def ask(client: httpx.Client, request: dict[str, Any]) -> httpx.Response:
    if request.get("raw_body") is not None:
        return client.request(
            request["method"],
            request["path"],
            content=request["raw_body"],
            headers={"content-type": "application/json"},
        )
    return client.request(request["method"], request["path"], json=request["body"])


def shape(value: Any) -> Any:
    """Keys and JSON types. Of a list, what its elements have in common or the first of them."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize("name", NAMES)
def test_the_lab_answers_in_the_shape_of_sglang(
    name: str, lab: Callable[[str], httpx.Client]
) -> None:
    kind, _, case = name.partition("/")
    recorded = recording(name)
    expected = recorded["response"]

    answer = ask(lab(kind), recorded["request"])

    status = OTHER_STATUS.get(name, OTHER_STATUS.get(case, expected["status"]))
    assert answer.status_code == status, answer.text
    if status != expected["status"]:
        return
    assert answer.headers.get("content-type") == expected["content_type"]
    body = expected["body"]
    if case in ("server_info", "metrics"):
        return  # below
    if "text/event-stream" in (expected["content_type"] or ""):
        got, wanted = events(answer.text), events(body)
        assert shape(got[0]) == shape(wanted[0])
        assert shape(got[-1]) == shape(wanted[-1])
        assert all(shape(event) in map(shape, wanted) for event in got)
    elif isinstance(body, str):
        assert bool(answer.text) == bool(body)
    else:
        for key in NOT_SERVED.get(case, ()):
            del body[key]
        assert shape(answer.json()) == shape(body)


@pytest.mark.parametrize("kind", ["dflash", "plain", "tree"])
def test_server_info_has_the_names_of_sglang(kind: str, lab: Callable[[str], httpx.Client]) -> None:
    expected = recording(f"{kind}/server_info")["response"]["body"]

    info = lab(kind).get("/server_info").json()

    assert info.keys() <= expected.keys()
    assert info.keys() >= READ_BY_THE_TOOL
    # SGLang repeats these flags, absent where they were not given; the lab says what holds.
    optional = {"speculative_dflash_block_size", "context_length"}
    for key in info.keys() - optional - {"startup_time", "internal_states"}:
        assert type(info[key]) is type(expected[key]), key
    state, reference = info["internal_states"][0], expected["internal_states"][0]
    assert state.keys() - {"avg_spec_accept_length"} <= reference.keys()


@pytest.mark.parametrize("kind", ["dflash", "tree"])
def test_every_metric_of_the_lab_is_one_of_sglang(
    kind: str, lab: Callable[[str], httpx.Client]
) -> None:
    def names(text: str) -> dict[str, str]:
        return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))

    recorded = names(recording(f"{kind}/metrics")["response"]["body"])
    served = names(lab(kind).get("/metrics").text)

    # A counter of aborts appears in SGLang with the first abort.
    assert served.items() - {("sglang:num_aborted_requests_total", "counter")} <= recorded.items()
    assert "sglang:spec_verify_calls_total" in served


READERS: dict[str, Callable[[EngineClient], object]] = {
    "/health": EngineClient.health,
    "/health_generate": EngineClient.health_generate,
    "/v1/models": EngineClient.models,
    "/server_info": EngineClient.server_info,
    "/flush_cache": EngineClient.flush_cache,
    "/metrics": EngineClient.metrics,
    "/generate": lambda engine: engine.generate("x", max_new_tokens=3),
    "/v1/chat/completions": lambda engine: engine.chat("x", model="lab-pair", max_tokens=3),
}
STREAM_READERS: dict[str, Callable[[EngineClient], object]] = {
    "/generate": lambda engine: list(engine.generate_stream("x", max_new_tokens=3)),
    "/v1/chat/completions": lambda engine: list(
        engine.chat_stream("x", model="lab-pair", max_tokens=3)
    ),
}


def reader(recorded: dict[str, Any]) -> Callable[[EngineClient], object] | None:
    """The method of the client that asks for such an answer, if there is one."""
    request, body = recorded["request"], recorded["response"]["body"]
    if isinstance(body, list):
        return None  # answers to several prompts at once
    streams = (request["body"] or {}).get("stream")
    return (STREAM_READERS if streams else READERS).get(request["path"])


@pytest.mark.parametrize("name", [name for name in NAMES if reader(recording(name))])
def test_the_client_understands_what_sglang_answers(name: str) -> None:
    recorded = recording(name)
    path, response = recorded["request"]["path"], recorded["response"]
    read = reader(recorded)
    assert read is not None
    reply = Reply(response["body"], status=response["status"])
    with canned_server({path: reply}) as server, EngineClient(server.base_url) as engine:
        if response["status"] == 200:
            assert read(engine) is not None
            return
        with pytest.raises(DdtreeError) as caught:
            read(engine)

    line = str(caught.value)
    assert line.startswith(f"{server.base_url}{path}: {response['status']} ")
    assert "\n" not in line
    assert len(line) < 400


def test_the_figures_of_a_recorded_answer_are_read() -> None:
    body = recording("dflash/chat_meta_info")["response"]["body"]
    with (
        canned_server({"/v1/chat/completions": Reply(body)}) as server,
        EngineClient(server.base_url) as engine,
    ):
        answer = engine.chat("Hi", model="lab-pair", max_tokens=3)

    assert answer.completion_tokens == 3
    assert answer.meta["spec_verify_ct"] == 2
    assert answer.finish_reason == "length"


def pieces(chunks: Iterable[Chunk]) -> list[tuple[str, int | None, str | None]]:
    return [(chunk.text, chunk.completion_tokens, chunk.finish_reason) for chunk in chunks]


COUNTED = [
    ("", None, None),
    ("3", 1, None),
    (" times 4 is 9", 7, None),
    (".", 8, None),
    ("", None, "stop"),
    ("", 9, None),
]
"""What SGLang streamed of a chat: tokens so far by chunk, <|im_end|> without a text."""


def test_a_recorded_chat_counts_its_tokens_chunk_by_chunk() -> None:
    recorded = recording("trained/chat_stream_counted")
    asked = recorded["request"]["body"]
    with (
        canned_server({"/v1/chat/completions": Reply(recorded["response"]["body"])}) as server,
        EngineClient(server.base_url) as engine,
    ):
        chunks = list(engine.chat_stream(asked["messages"], model="lab-pair", max_tokens=16))

    assert server.requests[0][2] == asked
    assert pieces(chunks) == COUNTED
    assert chunks[-1].prompt_tokens == 16


def test_the_lab_streams_the_chunks_that_sglang_streamed(
    lab: Callable[[str], httpx.Client],
) -> None:
    """The same pair in both: the same tokens, as many at each step."""
    messages = recording("trained/chat_stream_counted")["request"]["body"]["messages"]
    generate = recording("trained/generate_stream")
    recorded = events(generate["response"]["body"])
    with EngineClient(str(lab("trained").base_url)) as engine:
        chunks = list(engine.chat_stream(messages, model="lab-pair", max_tokens=16))
    served = events(ask(lab("trained"), generate["request"]).text)

    assert pieces(chunks) == COUNTED
    assert [event["output_ids"] for event in served] == [event["output_ids"] for event in recorded]
    figures = ("spec_verify_ct", "spec_num_correct_drafts", "spec_correct_drafts_histogram")
    for name in figures:
        assert served[-1]["meta_info"][name] == recorded[-1]["meta_info"][name]


def test_the_lab_takes_the_steps_of_sglangs_tree(lab: Callable[[str], httpx.Client]) -> None:
    """The same pair, the same budget: as many tokens, drafts and drafts off the spine each time."""
    generate = recording("tree/generate_stream")
    recorded = events(generate["response"]["body"])
    served = events(ask(lab("tree"), generate["request"]).text)

    assert [event["output_ids"] for event in served] == [event["output_ids"] for event in recorded]
    figures = (
        "spec_verify_ct",
        "spec_num_correct_drafts",
        "spec_num_off_spine_drafts",
        "spec_num_proposed_drafts",
        "spec_correct_drafts_histogram",
    )
    for name in figures:
        assert served[-1]["meta_info"][name] == recorded[-1]["meta_info"][name], name
    assert served[-1]["meta_info"]["spec_num_off_spine_drafts"] > 0
