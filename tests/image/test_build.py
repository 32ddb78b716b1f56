"""The log of a build, which outlives what ends the build."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtree_ops_cli.errors import DdtreeError
from ddtree_ops_cli.image.build import logged


def test_a_log_is_whole_to_the_last_line_while_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "new/build.log"
    with logged(file) as log:
        log.write("Step 1/2 : FROM base\n")
        assert file.read_text() == "Step 1/2 : FROM base\n"
    assert file.read_text() == "Step 1/2 : FROM base\n"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (KeyboardInterrupt(), "ended by KeyboardInterrupt: "),
        (DdtreeError("no", where="host gpu1"), "ended by DdtreeError: host gpu1: no"),
    ],
)
def test_a_log_says_what_ended_the_build(tmp_path: Path, error: BaseException, says: str) -> None:
    file = tmp_path / "build.log"
    with pytest.raises(type(error)), logged(file):
        raise error
    assert file.read_text() == f"{says}\n"
