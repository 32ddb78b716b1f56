"""Exchanges as tokens: the engines' chat template, and what counts as spoken."""

from __future__ import annotations

import random
from pathlib import Path

import jinja2
import numpy as np
import pytest
from tokenizers import Tokenizer

from tools.train_lab_pair import data
from tools.train_lab_pair.questions import FAMILIES
from tools.train_lab_pair.shapes import IM_END, MASK, SPECIAL_TOKENS

TARGET = Path(__file__).parents[2] / "ddtree_ops_cli/lab/weights/target"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(TARGET / "tokenizer.json"))


def test_prompts_are_what_the_chat_template_renders(tokenizer: Tokenizer) -> None:
    template = jinja2.Template((TARGET / "chat_template.jinja").read_text())
    rng = random.Random(0)
    for ask in FAMILIES.values():
        for _ in range(50):
            messages = ask(rng).messages
            rendered = template.render(messages=messages, add_generation_prompt=True)
            assert data.encode_messages(tokenizer, messages) == tokenizer.encode(rendered).ids


def test_exactly_the_answers_and_their_ends_are_spoken(tokenizer: Tokenizer) -> None:
    rng = random.Random(1)
    for ask in FAMILIES.values():
        for _ in range(50):
            exchange = ask(rng)
            ids, spoken = data.encode_exchange(tokenizer, exchange)
            said = [token for token, says in zip(ids, spoken, strict=True) if says]
            expected = [
                token
                for _, assistant in exchange.turns
                for token in (*tokenizer.encode(assistant).ids, IM_END)
            ]
            assert said == expected


def test_a_row_is_its_prompt_and_its_last_answer(tokenizer: Tokenizer, tmp_path: Path) -> None:
    data.save_answers(tmp_path / "a.npz", [[5, 6, 7], [8]], [[1, IM_END], [2, 3, IM_END]], [0, 3])
    rows, text = data.load(tmp_path / "a.npz")

    assert len(rows) == 2
    assert len(text) == 0
    assert rows.prompt(0).tolist() == [5, 6, 7]
    assert rows.row(1)[0].tolist() == [8, 2, 3, IM_END]
    assert rows.row(1)[1].tolist() == [False, True, True, True]
    assert rows.families.tolist() == [0, 3]


def test_the_special_tokens_have_the_last_ids(tokenizer: Tokenizer) -> None:
    first = tokenizer.get_vocab_size() - len(SPECIAL_TOKENS)

    assert [tokenizer.token_to_id(t) for t in SPECIAL_TOKENS] == list(range(first, first + 4))
    assert tokenizer.token_to_id("<|mask|>") == MASK


def test_every_byte_survives_the_tokenizer(tokenizer: Tokenizer) -> None:
    text = "tabs\tand\r\n\n  spaces, 'quotes', 12.5 %, café, 漢字, 🌲 <|im_end|"

    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert np.iinfo(np.uint16).max >= tokenizer.get_vocab_size()
