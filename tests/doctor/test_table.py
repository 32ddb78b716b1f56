"""docs/doctor.md is what the checks and their fixtures say."""

from __future__ import annotations

from tools.doctor_table import DOCUMENT, text


def test_the_table_in_the_docs_is_the_generated_one() -> None:
    assert DOCUMENT.read_text() == text(), "run python -m tools.doctor_table"
