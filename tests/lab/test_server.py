"""Where an answer of the lab server ends, and the figures that come with it, over real HTTP."""

from __future__ import annotations

from typing import Any

from ddtree_ops_cli.lab.tokenizer import Tokenizer
from tests.lab.random_pair import IM_END


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


def test_flushing_forgets_the_average(scripted: Any) -> None:
    client, _ = scripted()
    client.generate()

    before = client.http.get("/server_info").json()["internal_states"][0]
    client.http.post("/flush_cache")
    after = client.http.get("/server_info").json()["internal_states"][0]

    assert before["avg_spec_accept_length"] == 3.0
    assert "avg_spec_accept_length" not in after
