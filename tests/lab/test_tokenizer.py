from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddtree_ops_cli.errors import DdtreeError
from ddtree_ops_cli.lab.tokenizer import GrowingText, TemplateError, Tokenizer
from tests.lab.random_pair import IM_END, write_random_pair


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_pair(tmp_path_factory.mktemp("pair"))[0]


def changed(directory: Path, tmp_path: Path, **config: object) -> Path:
    """A copy of the model directory with other keys in tokenizer_config.json."""
    for file in directory.glob("tokenizer*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


TEXT = "Fünf Bäume: 🌳🌳🌳, and 日本語.\n\tEnd"


def test_text_survives_the_way_to_tokens_and_back(directory: Path) -> None:
    tokenizer = Tokenizer.load(directory)

    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT


def test_growing_text_is_a_prefix_of_the_whole_at_every_token(directory: Path) -> None:
    tokenizer = Tokenizer.load(directory)
    growing = GrowingText(tokenizer, tokenizer.encode("before"), skip_special_tokens=True)

    for token in tokenizer.encode(TEXT):
        growing.push(token)
        assert TEXT.startswith(growing.text)

    assert growing.finish() == TEXT


def test_an_answer_that_breaks_off_inside_a_character_ends_with_its_bytes(directory: Path) -> None:
    tokenizer = Tokenizer.load(directory)
    growing = GrowingText(tokenizer, [], skip_special_tokens=True)
    for token in tokenizer.encode("a🌳")[:-1]:
        growing.push(token)

    assert growing.text == "a"
    assert growing.finish().startswith("a\ufffd")


def test_special_tokens_show_only_when_asked_for(directory: Path) -> None:
    tokenizer = Tokenizer.load(directory)

    assert tokenizer.decode([IM_END]) == ""
    assert tokenizer.decode([IM_END], skip_special_tokens=False) == "<|im_end|>"


def test_the_end_of_sequence_comes_from_the_config(directory: Path, tmp_path: Path) -> None:
    plain = Tokenizer.load(changed(directory, tmp_path, eos_token="<|im_end|>"))
    added = Tokenizer.load(changed(directory, tmp_path, eos_token={"content": "<|im_end|>"}))
    none = Tokenizer.load(changed(directory, tmp_path))

    assert (plain.eos_token_id, added.eos_token_id, none.eos_token_id) == (IM_END, IM_END, None)


def test_a_template_of_several_is_the_default_one(directory: Path, tmp_path: Path) -> None:
    templates = [
        {"name": "tool_use", "template": "no"},
        {"name": "default", "template": "{{ messages[0].content }}{{ eos_token }}"},
    ]
    tokenizer = Tokenizer.load(
        changed(directory, tmp_path, chat_template=templates, eos_token="<|im_end|>")
    )

    assert tokenizer.chat([{"role": "user", "content": "x"}], {}) == [
        *tokenizer.encode("x"),
        IM_END,
    ]


def test_a_template_sees_the_options_of_the_request(directory: Path, tmp_path: Path) -> None:
    source = "{% if enable_thinking %}T{% else %}F{% endif %}"
    tokenizer = Tokenizer.load(changed(directory, tmp_path, chat_template=source))

    assert tokenizer.decode(tokenizer.chat([], {"enable_thinking": True})) == "T"
    assert tokenizer.decode(tokenizer.chat([], {})) == "F"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ raise_exception('one system message at most') }}", "one system message at most"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ messages[0].content + 1 }}", "concatenate"),
        (None, "no chat template"),
    ],
)
def test_what_a_template_refuses_is_told_to_the_client(
    directory: Path, tmp_path: Path, source: str | None, says: str
) -> None:
    config = {} if source is None else {"chat_template": source}
    tokenizer = Tokenizer.load(changed(directory, tmp_path, **config))

    with pytest.raises(TemplateError, match=says):
        tokenizer.chat([{"role": "user", "content": "x"}], {})


def test_a_template_that_does_not_parse_is_found_at_the_start(
    directory: Path, tmp_path: Path
) -> None:
    with pytest.raises(DdtreeError, match="chat template does not parse"):
        Tokenizer.load(changed(directory, tmp_path, chat_template="{% if %}"))


@pytest.mark.parametrize("content", ["", "{}", "not json"])
def test_a_broken_tokenizer_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)

    with pytest.raises(DdtreeError, match=r"tokenizer\.json: not a tokenizer"):
        Tokenizer.load(tmp_path)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(DdtreeError, match=r"tokenizer\.json: cannot read the tokenizer"):
        Tokenizer.load(tmp_path)


def test_a_broken_tokenizer_config_is_named(directory: Path, tmp_path: Path) -> None:
    changed(directory, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")

    with pytest.raises(DdtreeError, match=r"tokenizer_config\.json: not JSON"):
        Tokenizer.load(tmp_path)
