"""What the lab server refuses, and how: the status and the shape of SGLang, one clear line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.lab.random_pair import write_random_pair
from tests.lab_server import PATIENCE_S, ScriptedEngine, served

CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "x"}],
    "model": "lab",
    "max_tokens": 2,
}
TEXT = {"prompt": "x", "model": "lab", "max_tokens": 2}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    directory, _ = write_random_pair(tmp_path_factory.mktemp("pair"))
    engine = ScriptedEngine(lambda _: 65, context_length=256)
    with (
        served(engine, directory) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE_S, trust_env=False) as client,
    ):
        yield client


UNSERVED = [
    ("frequency_penalty", 0.5),
    ("presence_penalty", 0.5),
    ("repetition_penalty", 1.1),
    ("min_p", 0.1),
    ("n", 2),
    ("regex", "a+"),
    ("ebnf", 'root ::= "a"'),
    ("logit_bias", {"5": 1.0}),
    ("stop_regex", "a+"),
]


@pytest.mark.parametrize(("field", "value"), [*UNSERVED, ("min_tokens", 2), ("lora_path", "a")])
@pytest.mark.parametrize(
    ("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)]
)
def test_an_option_that_the_lab_does_not_serve_is_refused(
    http: httpx.Client, path: str, body: dict[str, Any], field: str, value: object
) -> None:
    answer = http.post(path, json=body | {field: value})

    assert answer.status_code == 400
    told = answer.json()
    assert told["object"] == "error"
    assert told["code"] == 400
    assert field in told["message"]
    assert "\n" not in told["message"]


@pytest.mark.parametrize(("field", "value"), [*UNSERVED, ("json_schema", "{}"), ("tempature", 0)])
def test_a_sampling_parameter_that_the_lab_does_not_serve_is_refused(
    http: httpx.Client, field: str, value: object
) -> None:
    answer = http.post("/generate", json={"text": "x", "sampling_params": {field: value}})

    assert answer.status_code == 400
    assert field in answer.json()["error"]["message"]


def test_options_that_ask_for_nothing_are_no_reason_to_refuse(http: httpx.Client) -> None:
    neutral: dict[str, Any] = {
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "min_p": 0.0,
        "n": 1,
        "regex": None,
        "response_format": {"type": "text"},
        "tools": [],
        "logprobs": False,
        "user": "somebody",
    }

    assert http.post("/v1/chat/completions", json=CHAT | neutral).status_code == 200
    for field, value in (("min_p", 0), ("n", 1), ("presence_penalty", 0.0), ("regex", None)):
        body = {"text": "x", "sampling_params": {field: value, "max_new_tokens": 1}}
        assert http.post("/generate", json=body).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT | {"logprobs": True}),
        ("/v1/completions", TEXT | {"logprobs": 1}),
        ("/v1/completions", TEXT | {"logprobs": 0}),
    ],
)
def test_speculative_decoding_returns_no_logprobs(
    http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    answer = http.post(path, json=body)

    assert answer.status_code == 400
    assert "DDTREE" in answer.json()["message"]


def test_speculative_decoding_returns_no_logprobs_natively(http: httpx.Client) -> None:
    answer = http.post("/generate", json={"text": "x", "return_logprob": True})

    assert answer.status_code == 400
    assert "DDTREE" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temperature": -1}, "temperature is -1"),
        ({"temperature": 1, "top_p": 0}, "top_p is 0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"top_k": 0}, "top_k is 0"),
        ({"max_new_tokens": -1}, "-1 new tokens"),
        ({"max_new_tokens": "many"}, "sampling_params: Input should be a valid integer"),
        ({"max_new_tokens": 5000}, "do not fit the context of 256"),
        ({"sampling_seed": -1}, "the seed is -1"),
    ],
)
def test_a_sampling_parameter_out_of_its_range_is_refused(
    http: httpx.Client, options: dict[str, Any], says: str
) -> None:
    answer = http.post("/generate", json={"text": "x", "sampling_params": options})

    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "give either text or input_ids"),
        ({"input_ids": []}, "the prompt is empty"),
        ({"text": ""}, "the prompt is empty"),
        ({"input_ids": [5, 320]}, "token 320 is outside the vocabulary of 320"),
        ({"input_ids": [5, -1]}, "token -1 is outside"),
        ({"input_ids": [65] * 256}, "the prompt of 256 tokens does not fit the context of 256"),
        ({"text": ["a", "b"], "stream": False, "rid": "twice", "sampling_params": [{}]}, "2 prom"),
        ({"text": ["a", "b"], "rid": ["same", "same"]}, "rid"),
    ],
)
def test_a_prompt_that_cannot_be_served_is_refused(
    http: httpx.Client, body: dict[str, Any], says: str
) -> None:
    answer = http.post("/generate", json=body)

    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


def test_a_refused_stream_of_generate_is_one_error_event(http: httpx.Client) -> None:
    answer = http.post("/generate", json={"input_ids": [65] * 256, "stream": True})

    assert answer.status_code == 200
    first, end = (line for line in answer.text.splitlines() if line)
    assert '"type":"invalid_request_error","code":400,"retryable":false' in first
    assert end == "data: [DONE]"


def test_a_refused_stream_of_the_openai_api_is_a_refused_request(http: httpx.Client) -> None:
    answer = http.post("/v1/completions", json=TEXT | {"prompt": [65] * 256, "stream": True})

    assert answer.status_code == 400
    assert answer.json()["type"] == "BadRequestError"


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        ("/generate", b'{"text": ', "the body is not JSON"),
        ("/v1/chat/completions", b"not json", "the body is not JSON"),
        ("/v1/completions", b"\xff\xfe", "the body is not JSON"),
        ("/generate", b"[1, 2]", "not a JSON object"),
        ("/v1/completions", b"{}", "prompt: Field required"),
        ("/v1/chat/completions", b"{}", "messages: Field required"),
        ("/v1/chat/completions", b'{"messages": "x"}', "messages: Input should be a valid list"),
        ("/generate", b'{"text": 5}', "text: Input should be a valid string"),
        ("/v1/completions", b'{"prompt": "x", "max_tokens": 0}', "max_tokens: "),
        ("/v1/completions", b'{"prompt": "\\ud800"}', "surrogates not allowed"),
        ("/generate", b"[" * 100_000, "the body is not JSON"),
        ("/generate", b'{"input_ids": [1e400]}', "input_ids: "),
        ("/v1/chat/completions", b'{"messages": [{"role": "king", "content": "x"}]}', "messages: "),
    ],
)
def test_a_body_that_does_not_parse_is_a_bad_request(
    http: httpx.Client, path: str, content: bytes, says: str
) -> None:
    answer = http.post(path, content=content, headers={"content-type": "application/json"})

    assert answer.status_code == 400
    told = answer.json()
    assert told["type"] == "Bad Request"
    assert says in told["message"]
    assert "\n" not in told["message"]


def test_another_content_type_is_a_bad_request(http: httpx.Client) -> None:
    answer = http.post("/generate", content=b"{}", headers={"content-type": "text/plain"})

    assert answer.status_code == 400
    assert "application/json" in answer.json()["message"]


def test_an_unknown_model_name_is_echoed_but_an_adapter_is_refused(http: httpx.Client) -> None:
    unknown = http.post("/v1/completions", json=TEXT | {"model": "nobody"})
    adapter = http.post("/v1/completions", json=TEXT | {"model": "lab:adapter"})

    assert unknown.json()["model"] == "nobody"
    assert adapter.status_code == 400
    assert "no LoRA adapter 'adapter'" in adapter.json()["message"]


def test_meta_info_and_token_ids_do_not_go_with_a_streamed_chat(http: httpx.Client) -> None:
    for field in ("return_meta_info", "return_token_ids", "return_prompt_token_ids"):
        answer = http.post("/v1/chat/completions", json=CHAT | {field: True, "stream": True})
        assert answer.status_code == 400


def test_a_default_length_is_made_to_fit_but_a_wanted_one_must(http: httpx.Client) -> None:
    prompt = {"input_ids": [65] * 250}
    default = http.post("/generate", json=prompt)
    wanted = http.post("/generate", json=prompt | {"sampling_params": {"max_new_tokens": 128}})

    assert default.status_code == 200
    assert default.json()["meta_info"]["completion_tokens"] == 256 - 250 - 2
    assert wanted.status_code == 400


def test_tools_are_refused(http: httpx.Client) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    called = {"role": "assistant", "content": None, "tool_calls": [tool]}

    for body in ({"tools": [tool]}, {"messages": [*CHAT["messages"], called]}):
        answer = http.post("/v1/chat/completions", json=CHAT | body)
        assert answer.status_code == 400
        assert "tool" in answer.json()["message"]


def test_messages_that_are_empty_are_refused(http: httpx.Client) -> None:
    assert http.post("/v1/chat/completions", json=CHAT | {"messages": []}).status_code == 400


def test_a_path_or_a_method_that_does_not_exist(http: httpx.Client) -> None:
    lost = http.get("/nope")
    wrong = http.get("/v1/chat/completions")

    assert (lost.status_code, lost.json()) == (404, {"detail": "Not Found"})
    assert (wrong.status_code, wrong.json()) == (405, {"detail": "Method Not Allowed"})


def test_a_model_that_is_not_served_has_no_card(http: httpx.Client) -> None:
    assert http.get("/v1/models/lab").json()["id"] == "lab"
    lost = http.get("/v1/models/nobody")
    assert lost.status_code == 404
    assert lost.json()["error"]["code"] == "model_not_found"


def test_a_flush_with_a_strange_timeout_is_a_bad_request(http: httpx.Client) -> None:
    for value in ("-1", "soon"):
        assert http.post(f"/flush_cache?timeout={value}").status_code == 400
