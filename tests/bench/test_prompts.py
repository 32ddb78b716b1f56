"""Suites: the bundled ones, and what is said of a broken one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ddtree_ops_cli.bench.prompts import bundled_suites, load_suite
from ddtree_ops_cli.errors import ProfileError, UsageError


def test_the_story_is_its_three_prompts_with_its_own_figures() -> None:
    story = load_suite("story")
    assert [prompt.text for prompt in story.prompts] == [
        "Write a Python function fibonacci(n) using iteration. Return only code.",
        "Explain the quicksort algorithm in 3 sentences.",
        "What is 2+2? Answer with just the number.",
    ]
    assert [tuple(prompt.reference.values()) for prompt in story.prompts] == [
        (75.5, 140.9), (80.0, 97.2), (137.4, 109.2),
    ]  # fmt: skip


def test_held_out_has_the_same_number_of_prompts_of_each_family() -> None:
    families = Counter(prompt.family for prompt in load_suite("held-out").prompts)
    assert set(families) == {"code", "explanation", "short answer", "chat"}
    assert set(families.values()) == {4}


def test_a_file_of_prompts_is_a_suite(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "Hello."}\n\n{"prompt": "Bye.", "id": "last", "family": "chat"}\n')
    suite = load_suite(str(file))
    assert suite.name == "mine"
    assert [(prompt.id, prompt.text, prompt.family) for prompt in suite.prompts] == [
        ("1", "Hello.", ""),
        ("last", "Bye.", "chat"),
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{'prompt': 1}", ":2:2: not JSON: .*; a line is an object like"),
        ('{"prompt": "cut', ":2:12: not JSON: Unterminated string"),
        ('["Hello."]', ":2: not an object; write"),
        ("[" * 100_000, ":2: nested too deeply"),
        ('{"text": "Hello."}', ":2: unknown key 'text'; known are prompt, id"),
        ('{"prompt": 7}', ":2: 'prompt' is not a text"),
        ('{"prompt": "  "}', ":2: 'prompt' is empty or missing"),
        ('{"id": "x"}', ":2: 'prompt' is empty or missing"),
        ('{"prompt": "Hi.", "id": ""}', ":2: 'id' is empty or missing"),
        ('{"prompt": "Hi.", "id": "first"}', ":2: a second prompt 'first'; rename one"),
        ('{"prompt": "Hi.", "reference": {"tree": "fast"}}', ":2: 'reference' of tree is not"),
        ('{"prompt": "Hi.", "reference": {"tree": NaN}}', ":2: 'reference' of tree is not"),
        ('{"prompt": "Hi.", "reference": []}', ":2: 'reference' is not an object"),
    ],
)
def test_a_broken_line_is_refused_with_its_place(tmp_path: Path, line: str, says: str) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(f'{{"prompt": "Hello.", "id": "first"}}\n{line}\n')
    with pytest.raises(ProfileError) as refused:
        load_suite(str(file))
    assert refused.match(f"^{file}{says}")


def test_a_line_that_is_not_utf_8_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_bytes(b'{"prompt": "caf\xe9"}\n')
    with pytest.raises(ProfileError, match=r"mine\.jsonl:1: not UTF-8"):
        load_suite(str(file))


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_suite_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(content)
    with pytest.raises(ProfileError, match="no prompt in this suite"):
        load_suite(str(file))


def test_an_unknown_suite_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no suite 'storry': .*there is held-out, story, or name"):
        load_suite("storry")


def test_every_bundled_suite_loads() -> None:
    assert bundled_suites() == ["held-out", "story"]
    for name in bundled_suites():
        assert load_suite(name).prompts
