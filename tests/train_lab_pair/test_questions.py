"""The generated exchanges: right answers, and contents that training never sees."""

from __future__ import annotations

import ast
import random
import re

import pytest

from tools.train_lab_pair.questions import FAMILIES, STORY_PROMPTS, draw
from tools.train_lab_pair.questions.exchange import is_held_out

DRAWS = 2000


@pytest.mark.parametrize("family", FAMILIES)
def test_no_held_out_content_is_drawn_for_training(family: str) -> None:
    ask = FAMILIES[family]
    train = {draw(ask, random.Random(seed), held_out=False).key for seed in range(DRAWS)}
    held_out = {draw(ask, random.Random(seed), held_out=True).key for seed in range(DRAWS)}

    assert not train & held_out
    assert not any(map(is_held_out, train))
    assert len(held_out) > 50, "the held-out side is too narrow to measure on"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_draws_the_same_exchanges(family: str) -> None:
    def drawn(seed: int) -> list[str]:
        rng = random.Random(seed)
        return [repr(FAMILIES[family](rng)) for _ in range(100)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_the_story_prompts_are_trained_on() -> None:
    rng = random.Random(0)
    asked = {
        exchange.messages[-1]["content"]
        for family in ("code", "explanation", "short answer")
        for exchange in (draw(FAMILIES[family], rng, held_out=False) for _ in range(4000))
    }

    assert set(STORY_PROMPTS) <= asked


def test_every_code_answer_is_python_and_defines_what_was_asked_for() -> None:
    rng = random.Random(1)
    for _ in range(DRAWS):
        exchange = FAMILIES["code"](rng)
        [*_, definition] = ast.parse(exchange.answer).body
        assert isinstance(definition, ast.FunctionDef | ast.ClassDef)
        assert definition.name in exchange.messages[-1]["content"]


def test_the_sums_are_right() -> None:
    rng = random.Random(2)
    checked = 0
    for _ in range(DRAWS):
        exchange = FAMILIES["short answer"](rng)
        if equation := re.search(r"(\d+) ([-+*]) (\d+) = (\d+)", exchange.answer):
            a, op, b, result = equation.groups()
            a, b = int(a), int(b)
            assert int(result) == {"+": a + b, "-": a - b, "*": a * b}[op]
            checked += 1

    assert checked > 100


def test_an_explanation_has_as_many_sentences_as_asked_for() -> None:
    numbers = {w: i for i, w in enumerate("zero one two three four five six".split())}  # noqa: SIM905
    rng = random.Random(3)
    checked = 0
    for _ in range(DRAWS):
        exchange = FAMILIES["explanation"](rng)
        question = exchange.messages[-1]["content"]
        if asked := re.search(r"(\w+) sentences?", question):
            word = asked[1].lower()
            assert len(re.findall(r"[.!?](?: |$)", exchange.answer)) == (
                int(word) if word.isdigit() else numbers[word]
            ), (question, exchange.answer)
            checked += 1

    assert checked > 500
