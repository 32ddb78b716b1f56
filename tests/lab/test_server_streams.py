"""What a stream of the lab server shows, and when."""

from __future__ import annotations

from typing import Any


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
