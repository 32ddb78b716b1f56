"""The client on canned answers; tests/engine_api/test_contract.py has the real ones."""

import json
import socket
import time

import pytest

from ddtree_ops_cli.engine_api.client import EngineClient
from ddtree_ops_cli.errors import DdtreeError, Unhealthy
from tests.canned import Reply, canned_server

GENERATED = {
    "text": " five",
    "output_ids": [7, 9],
    "meta_info": {
        "id": "a",
        "finish_reason": {"type": "length", "length": 2},
        "prompt_tokens": 4,
        "completion_tokens": 2,
    },
}


def events(*bodies: object, done: bool = True) -> str:
    lines = [f"data: {json.dumps(body)}\n\n" for body in bodies]
    return "".join(lines) + ("data: [DONE]\n\n" if done else "")


def test_generate_always_sends_the_temperature() -> None:
    with (
        canned_server({"/generate": Reply(GENERATED)}) as server,
        EngineClient(server.base_url) as engine,
    ):
        answer = engine.generate([1, 2], max_new_tokens=2, ignore_eos=True)

    assert server.requests == [
        (
            "POST",
            "/generate",
            {
                "input_ids": [1, 2],
                "sampling_params": {"max_new_tokens": 2, "temperature": 0.0, "ignore_eos": True},
            },
        )
    ]
    assert (answer.text, answer.token_ids, answer.finish_reason) == (" five", (7, 9), "length")
    assert answer.completion_tokens == 2


def test_chat_asks_for_meta_info_and_token_ids() -> None:
    reply = {
        "id": "a",
        "model": "m",
        "choices": [
            {
                "message": {"role": "assistant", "content": "4"},
                "finish_reason": "stop",
                "token_ids": [5],
                "meta_info": {"spec_verify_ct": 1},
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    }
    with (
        canned_server({"/v1/chat/completions": Reply(reply)}) as server,
        EngineClient(server.base_url) as engine,
    ):
        answer = engine.chat("2+2?", model="m", max_tokens=8, seed=1)

    sent = server.requests[0][2]
    assert sent["messages"] == [{"role": "user", "content": "2+2?"}]
    assert sent["temperature"] == 0.0
    assert sent["return_meta_info"] is True
    assert sent["return_token_ids"] is True
    assert sent["seed"] == 1
    assert answer.meta == {"spec_verify_ct": 1}
    assert answer.token_ids == (5,)
    assert answer.model == "m"


def test_a_streamed_answer_gives_its_pieces_with_token_counts_and_times() -> None:
    first = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
    text = {"choices": [{"delta": {"content": "ab"}}], "usage": {"completion_tokens": 3}}
    last = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    usage = {"choices": [], "usage": {"completion_tokens": 3, "prompt_tokens": 9}}
    before = time.perf_counter()
    with (
        canned_server({"/v1/chat/completions": Reply(events(first, text, last, usage))}) as server,
        EngineClient(server.base_url) as engine,
    ):
        chunks = list(engine.chat_stream("x", model="m", max_tokens=3))

    assert [chunk.text for chunk in chunks] == ["", "ab", "", ""]
    assert [chunk.completion_tokens for chunk in chunks] == [None, 3, None, 3]
    assert [chunk.finish_reason for chunk in chunks] == [None, None, "stop", None]
    assert chunks[-1].prompt_tokens == 9
    assert before < chunks[0].arrived <= chunks[-1].arrived <= time.perf_counter()
    assert server.requests[0][2]["stream_options"]["include_usage"] is True


def test_a_streamed_generate_gives_only_what_is_new() -> None:
    def event(text: str, tokens: int) -> dict[str, object]:
        return {"text": text, "meta_info": {"completion_tokens": tokens, "finish_reason": None}}

    with (
        canned_server({"/generate": Reply(events(event("ab", 2), event("abcd", 5)))}) as server,
        EngineClient(server.base_url) as engine,
    ):
        chunks = list(engine.generate_stream("x", max_new_tokens=5))

    assert [(chunk.text, chunk.completion_tokens) for chunk in chunks] == [("ab", 2), ("cd", 5)]


def test_a_stream_that_ends_early_is_unhealthy() -> None:
    body = events({"choices": [{"delta": {"content": "a"}}]}, done=False)
    with (
        canned_server({"/v1/chat/completions": Reply(body)}) as server,
        EngineClient(server.base_url) as engine,
        pytest.raises(Unhealthy, match=r"/v1/chat/completions: the stream ended before \[DONE\]"),
    ):
        list(engine.chat_stream("x", model="m", max_tokens=3))


def test_a_connection_lost_in_mid_stream_is_unhealthy() -> None:
    body = events({"choices": [{"delta": {"content": "a"}}]}, done=False)
    with (
        canned_server({"/v1/chat/completions": Reply(body, breaks_off=True)}) as server,
        EngineClient(server.base_url) as engine,
        pytest.raises(Unhealthy, match="no answer: "),
    ):
        list(engine.chat_stream("x", model="m", max_tokens=3))


def test_an_error_inside_a_stream_is_unhealthy() -> None:
    body = events({"error": {"object": "error", "message": "out of memory", "code": 500}})
    with (
        canned_server({"/v1/chat/completions": Reply(body)}) as server,
        EngineClient(server.base_url) as engine,
        pytest.raises(Unhealthy, match="out of memory"),
    ):
        list(engine.chat_stream("x", model="m", max_tokens=3))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "The input is longer"}}, "The input is longer"),
        ({"object": "error", "message": "bad\nvalue", "type": "x", "code": 400}, "bad value"),
        ({"error": "needs an admin key"}, "needs an admin key"),
        ({"detail": "Not Found"}, "Not Found"),
        ("plain text\n", "plain text"),
    ],
)
def test_a_refusal_repeats_the_words_of_the_server(body: object, words: str) -> None:
    with (
        canned_server({"/generate": Reply(body, status=400)}) as server,
        EngineClient(server.base_url) as engine,
        pytest.raises(DdtreeError) as caught,
    ):
        engine.generate("x", max_new_tokens=1)

    assert str(caught.value) == f"{server.base_url}/generate: 400 Bad Request: {words}"
    assert not isinstance(caught.value, Unhealthy)


def test_a_refused_stream_is_refused_as_well() -> None:
    reply = Reply({"object": "error", "message": "too long"}, status=400)
    with (
        canned_server({"/v1/chat/completions": reply}) as server,
        EngineClient(server.base_url) as engine,
        pytest.raises(DdtreeError, match="400 Bad Request: too long"),
    ):
        list(engine.chat_stream("x", model="m", max_tokens=3))


def test_a_server_error_is_unhealthy() -> None:
    with (
        canned_server({"/v1/models": Reply("boom", status=500)}) as server,
        EngineClient(server.base_url) as engine,
        pytest.raises(Unhealthy, match=r"/v1/models: 500 Internal Server Error: boom"),
    ):
        engine.models()


@pytest.mark.parametrize("body", ["<html>", [], {"data": 3}, {"object": "list"}])
def test_an_answer_of_another_shape_is_unhealthy(body: object) -> None:
    with (
        canned_server({"/v1/models": Reply(body)}) as server,
        EngineClient(server.base_url) as engine,
        pytest.raises(Unhealthy, match="cannot read"),
    ):
        engine.models()


def test_an_aborted_answer_is_not_an_answer() -> None:
    aborted = {"type": "abort", "message": "no return_logprob", "status_code": 400}
    reply = GENERATED | {"meta_info": GENERATED["meta_info"] | {"finish_reason": aborted}}  # type: ignore[operator]
    with (
        canned_server({"/generate": Reply(reply)}) as server,
        EngineClient(server.base_url) as engine,
        pytest.raises(Unhealthy, match="aborted the request: no return_logprob"),
    ):
        engine.generate("x", max_new_tokens=1)


def test_probes_report_and_never_raise() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with EngineClient(url) as engine:
            refused = engine.health()
    with (
        canned_server({"/health": Reply(status=503)}) as server,
        EngineClient(server.base_url) as engine,
    ):
        starting = engine.health()
        server.replies["/health"] = Reply()
        ready = engine.health()

    assert (refused.status, refused.ready) == (None, False)
    assert "refused" in refused.detail
    assert (starting.status, starting.ready) == (503, False)
    assert ready.ready


def test_no_server_is_unhealthy_for_anything_but_a_probe() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with (
            EngineClient(url) as engine,
            pytest.raises(Unhealthy, match=r"/server_info: no answer: .*refused"),
        ):
            engine.server_info()


def test_a_busy_engine_does_not_flush() -> None:
    with (
        canned_server({"/flush_cache": Reply("busy", status=400)}) as server,
        EngineClient(server.base_url) as engine,
    ):
        busy = engine.flush_cache()
        server.replies["/flush_cache"] = Reply("Cache flushed.\n")
        idle = engine.flush_cache(wait=2.0)

    assert (busy, idle) == (False, True)
    assert server.requests[-1][:2] == ("POST", "/flush_cache?timeout=2.0")


def test_metrics_follow_the_redirect_and_sum_over_labels() -> None:
    text = (
        "# TYPE sglang:generation_tokens_total counter\n"
        'sglang:generation_tokens_total{is_streaming="true",model_name="m"} 5.0\n'
        'sglang:generation_tokens_total{is_streaming="false",model_name="m"} 7.0\n'
        "sglang:spec_accept_length 3.25\n"
        "sglang:broken abc\n"
    )
    replies = {"/metrics": Reply(status=307, location="/metrics/"), "/metrics/": Reply(text)}
    with canned_server(replies) as server, EngineClient(server.base_url) as engine:
        found = engine.metrics()

    assert found.total("sglang:generation_tokens_total") == 12
    assert found.total("sglang:spec_accept_length") == 3.25
    assert found.total("sglang:broken") is None
    assert found.total("sglang:absent") is None


def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with (
        canned_server({"/health": Reply()}) as server,
        EngineClient(server.base_url) as engine,
    ):
        assert engine.health().ready
