"""What single checks decide, on data."""

from __future__ import annotations

import pytest

from ddtree_ops_cli.engine_api.answers import Completion
from ddtree_ops_cli.smoke.comparison import first_difference
from ddtree_ops_cli.smoke.rederivation import positions
from ddtree_ops_cli.smoke.repetition import find_loop


@pytest.mark.parametrize("length", [48, 64, 96, 500])
def test_at_least_24_places_are_derived_again_the_first_and_the_last_among_them(
    length: int,
) -> None:
    places = positions(length, 32)

    assert len(places) >= 24
    assert len(set(places)) == len(places)
    assert (places[0], places[-1]) == (0, length - 1)


PROSE = list(range(100, 160))


@pytest.mark.parametrize(
    ("tokens", "start", "period"),
    [
        (PROSE[:20] + [7] * 40, 20, 1),
        (PROSE[:20] + [7, 8, 9] * 20, 20, 3),
        (PROSE[:20] + [7, 8, 9] * 20 + [7], 20, 3),
        (PROSE[:10] + [*range(16)] * 5, 10, 16),
    ],
)
def test_a_loop_is_found_where_it_begins(tokens: list[int], start: int, period: int) -> None:
    loop = find_loop(tokens)

    assert loop is not None
    assert (loop.start, len(loop.cycle)) == (start, period)


@pytest.mark.parametrize(
    "tokens",
    [
        PROSE,
        [],
        [7],
        PROSE + [7] * 5,  # an ellipsis
        [7, 8, 9] * 3 + PROSE,  # begins with one, but goes on
        [value for item in range(20) for value in (5, 6, item + 200, 8)],  # a list: same frame
        PROSE[:30] + [*range(17)] * 3,  # a refrain
    ],
)
def test_ordinary_text_is_no_loop(tokens: list[int]) -> None:
    assert find_loop(tokens) is None


def answer(text: str, *tokens: int) -> Completion:
    return Completion(text, tokens, 1, len(tokens), "length")


def test_answers_differ_at_a_token_where_both_have_tokens() -> None:
    difference = first_difference(answer("a", 1, 2, 3), answer("b", 1, 5, 3))

    assert difference is not None
    assert (difference.position, str(difference)) == (1, "token 1 (2 and 5)")


def test_an_answer_that_stops_earlier_differs_at_its_end() -> None:
    difference = first_difference(answer("a", 1, 2), answer("a", 1))

    assert str(difference) == "token 1 (2 and the end)"


def test_answers_without_tokens_are_compared_by_their_text() -> None:
    assert first_difference(answer("same"), answer("same")) is None
    assert str(first_difference(answer("same"), answer("sane"))) == "character 2 ('m' and 'n')"
