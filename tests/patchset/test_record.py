"""The installer's list of files is kept right, every other byte of it as it was."""

from __future__ import annotations

import pytest

from ddtree_ops_cli.patchset.record import rewritten
from tests.patchset.sample import record_line


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_are_replaced_in_place_and_new_ones_appended(end: str) -> None:
    record = f'a.py,sha256=old,1{end}"odd, name.py",sha256=x,2{end}R,,{end}'
    new = rewritten(record.encode(), {"n.py": b"n", "a.py": b"12", "o.json": None})
    assert new.decode() == (
        f'{record_line("a.py", b"12")}{end}"odd, name.py",sha256=x,2{end}R,,{end}'
        f"{record_line('n.py', b'n')}{end}o.json,,{end}"
    )


def test_a_quoted_path_is_recognised() -> None:
    assert rewritten(b'"a.py",sha256=old,1\n', {"a.py": b""}).startswith(b"a.py,sha256=47DEQ")


def test_a_last_line_without_an_end_gets_one_before_more_follows() -> None:
    assert rewritten(b"a,,\nR,,", {"n": None}) == b"a,,\nR,,\nn,,\n"


def test_bytes_that_are_not_utf8_survive() -> None:
    assert rewritten(b"\xff.py,,\n", {"n": None}) == b"\xff.py,,\nn,,\n"
