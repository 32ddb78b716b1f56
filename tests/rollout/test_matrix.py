"""The stored matrix is that of the playbooks as they are, and the page is what was recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.rollout import matrix
from tests.rollout.matrix import FAULTS, Cell, Record


def record(cell: Cell, **more: str) -> Record:
    parts = (cell.playbook, cell.step, cell.fault)
    return replace(Record(*parts, "c0ffee", "2026-11-29T22:00:00Z", 1.0), **more)  # type: ignore[arg-type]


def test_each_step_of_each_playbook_meets_each_fault() -> None:
    cells = matrix.cells()
    assert len(set(cells)) == len(cells)
    steps = {(cell.playbook, cell.step) for cell in cells}
    assert {("deploy", "settle"), ("rollback", "start-kept"), ("stop", "stop-previous")} <= steps
    assert len(cells) == len(steps) * len(FAULTS)


def test_the_page_is_what_was_recorded() -> None:
    assert matrix.PAGE.read_text() == matrix.render(matrix.read())


def test_every_cell_of_the_playbooks_was_run_and_passed() -> None:
    """A new step, or a fault more: `make faults-rollout` runs what is missing."""
    assert [str(cell) for cell in matrix.left_to_run()] == []


def test_a_cell_that_failed_or_was_not_run_is_left_to_run_and_told(tmp_path: Path) -> None:
    file = tmp_path / "records"
    first, second, third, *_ = matrix.cells()
    matrix.append(record(first), file)
    matrix.append(record(second), file)
    matrix.append(record(second, failure="two | services"), file)
    left = matrix.left_to_run(file=file)
    assert left == matrix.cells()[1:]
    assert [*matrix.left_to_run("1/2", file), *matrix.left_to_run("2/2", file)] != left
    assert set(matrix.left_to_run("1/2", file)) | set(matrix.left_to_run("2/2", file)) == set(left)
    page = matrix.render(matrix.read(file))
    assert f"1 of {len(matrix.cells())} cells passed, 1 failed" in page
    assert f"| {second.playbook} | {second.step} | **failed** | two / services |" in page
    assert f"| {third.playbook} | {third.step} | **not run** |" in page
