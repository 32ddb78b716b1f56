"""Every profile in cases/ is refused with exactly the lines of the .expected file beside it.

`REWRITE=1 pytest tests/profiles/test_refusals.py` writes those files anew, for a reader to judge.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ddtree_ops_cli.bundled import bundled
from ddtree_ops_cli.errors import ProfileError
from ddtree_ops_cli.profiles.load import load
from ddtree_ops_cli.profiles.locate import KINDS, Library

CASES = Path(__file__).parent / "cases"
FILES = sorted(file.relative_to(CASES) for kind in KINDS for file in (CASES / kind).glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=str)
def test_an_invalid_profile_is_refused_line_by_line(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CASES)
    library = Library([Path(), bundled("profiles")])
    kind = next(kind for kind in KINDS if kind == file.parent.name)

    with pytest.raises(ProfileError) as refused:
        load(file, kind, file.stem, library)

    assert refused.value.exit_code == 3
    expected = file.with_suffix(".expected")
    if os.environ.get("REWRITE"):
        expected.write_text(f"{refused.value}\n")
    assert f"{refused.value}\n" == expected.read_text()
