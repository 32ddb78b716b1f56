"""How a stream becomes a rate: what counts, and what is kept out."""

from __future__ import annotations

import pytest

from ddtree_ops_cli.bench.answer import timing
from ddtree_ops_cli.engine_api.answers import Chunk

ROLE = Chunk("", None, 1.0)


def counted(arrived: float, tokens: int, text: str = "x") -> Chunk:
    return Chunk(text, tokens, arrived)


def end(arrived: float, tokens: int) -> tuple[Chunk, Chunk]:
    return (
        Chunk("", None, arrived, finish_reason="stop"),
        Chunk("", tokens, arrived + 9, prompt_tokens=5),
    )


def test_the_rate_is_that_of_the_tokens_after_the_first_chunk() -> None:
    found = timing([ROLE, counted(1.0, 1), counted(1.5, 6), counted(2.0, 11), *end(2.1, 11)], 0.4)
    assert found.ttft_s == pytest.approx(0.6)
    assert found.decode_s == pytest.approx(1.0)
    assert found.decode_tok_s == pytest.approx(10)
    assert (found.tokens, found.prompt_tokens, found.text) == (11, 5, "xxx")


def test_several_tokens_in_the_first_chunk_do_not_inflate_the_rate() -> None:
    # 10 tok/s after it; counting from the first chunk's 6 tokens on would give 16.
    found = timing([ROLE, counted(1.0, 6), counted(2.0, 16), *end(2.0, 16)], 0.0)
    assert found.decode_tok_s == pytest.approx(10)
    assert found.first_tokens == 6


def test_a_last_token_without_text_arrives_with_the_reason_of_the_end() -> None:
    found = timing([ROLE, counted(1.0, 1), counted(1.5, 5), *end(2.0, 6)], 0.0)
    assert found.decode_s == pytest.approx(1.0)
    assert found.decode_tok_s == pytest.approx(5)


def test_what_comes_after_the_last_token_is_not_decoding() -> None:
    found = timing([ROLE, counted(1.0, 1), counted(2.0, 11), *end(7.0, 11)], 0.0)
    assert found.decode_tok_s == pytest.approx(10)


def test_chunks_are_not_tokens() -> None:
    # Two tokens whose bytes were held back until they made a character come as one chunk.
    found = timing([ROLE, counted(1.0, 1), counted(2.0, 4), *end(2.0, 4)], 0.0)
    assert found.decode_tok_s == pytest.approx(3)


def test_an_answer_within_one_chunk_has_no_rate() -> None:
    found = timing([ROLE, counted(1.0, 2), *end(1.0, 2)], 0.0)
    assert found.decode_tok_s is None


def test_an_answer_without_any_text_has_no_rate() -> None:
    found = timing([ROLE, *end(1.0, 1)], 0.0)
    assert found.decode_tok_s is None
    assert found.ttft_s == pytest.approx(1.0)


def test_reasoning_counts_although_its_text_is_elsewhere() -> None:
    found = timing([ROLE, counted(1.0, 1, ""), counted(2.0, 6, ""), *end(2.0, 6)], 0.0)
    assert found.decode_tok_s == pytest.approx(5)


@pytest.mark.parametrize(
    ("chunks", "says"),
    [
        ([ROLE, Chunk("x", None, 1.0), *end(2.0, 3)], "does not count tokens"),
        ([ROLE, counted(1.0, 1)], "ended without the usage"),
        ([ROLE, counted(1.0, 1), end(2.0, 3)[0]], "ended without the usage"),
        ([ROLE, *end(1.0, 0)], "the answer is empty"),
    ],
)
def test_a_stream_that_cannot_be_measured_is_refused(chunks: list[Chunk], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        timing(chunks, 0.0)
