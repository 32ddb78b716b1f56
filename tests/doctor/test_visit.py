"""The doctor on a host, over a shell that a test controls."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from ddtree_ops_cli.doctor.visit import parsed, visit
from ddtree_ops_cli.errors import DdtreeError
from ddtree_ops_cli.hosts.shell import Completed, OutOfTime


@dataclass
class Python:
    """A shell whose python3 is this one, or answers what a test says."""

    answer: tuple[int, str, str] | None = None
    late: bool = False
    name: str = "gpu1"

    def run(self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: str = "") -> Completed:
        words = tuple(argv)
        assert words == ("python3", "-", "--json")
        if self.late:
            raise OutOfTime(Completed(words, -1, "", "", 0.0, None), self.name)
        if self.answer is not None:
            return Completed(words, *self.answer, 0.0, None)
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-", "--json"], input=stdin, capture_output=True, text=True
        )
        return Completed(words, done.returncode, done.stdout, done.stderr, 0.0, None)


def test_facts_are_gathered_there_and_judged_here() -> None:
    diagnosis = visit(Python(), {"algorithm": "DDTREE", "attention_backend": "fa3"}, version="1")
    assert diagnosis.place == "host gpu1"
    assert diagnosis.facts["system"]["architecture"]
    assert diagnosis.blocked


@pytest.mark.parametrize(
    ("shell", "says"),
    [
        (Python((127, "", "sh: python3: not found")), "there is no python3 for the doctor"),
        (Python((1, "", "  File x\nSyntaxError: bad")), "did not run there: SyntaxError: bad"),
        (Python((0, "[]", "")), "did not run there: []"),
        (Python((0, "", "")), "did not run there: it said nothing"),
        (Python(late=True), "did not end within 600 s"),
    ],
)
def test_a_host_that_cannot_run_it_is_one_line_with_a_mend(shell: Python, says: str) -> None:
    with pytest.raises(DdtreeError) as caught:
        visit(shell, {}, version="1")
    assert says in str(caught.value)
    assert str(caught.value).startswith("host gpu1: ")
    assert caught.value.mend
    assert "\n" not in str(caught.value)


def test_words_of_a_host_that_a_terminal_would_obey_are_not_shown() -> None:
    with pytest.raises(DdtreeError) as caught:
        parsed("", "\x1b[2Jgone", where="host gpu1")
    assert "\x1b" not in str(caught.value)


def test_what_is_there_is_kept_as_it_was_said() -> None:
    assert parsed(json.dumps({"facts": {"format": 1}}), "", where="x") == {"format": 1}
