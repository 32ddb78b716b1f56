"""The matrix of faults: each fault at each step of each playbook, and what became of it.

The cells are the playbooks' steps times FAULTS. A cell that was run is a line of RECORDS; the
page is made from these lines and from nothing else:

    python -m tests.rollout.matrix      print the matrix and write the page; 1 if a cell is missing
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ddtree_ops_cli.rollout.playbook import load, names

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/rollout-faults.md"
RECORDS = ROOT / "docs/measurements/rollout-faults.jsonl"

FAULTS = {
    "kill -9": "The command is killed when the step was applied, before that is written down.",
    "Ctrl-C": "Ctrl-C when the step was applied, before that is written down.",
    "link cut briefly": "The cable is pulled before the step is applied and put back 10 s later.",
    "link cut for good": "The cable is pulled before the step is applied, till the command ended.",
    "dockerd killed": "`kill -9` of dockerd before the step is applied; it comes back afterwards.",
    "power off": "Every process of the host ends when the step was applied; the host boots again.",
    "disk full": "The disks of the audit log and of Docker's containers are full before the step "
    "is applied, till the command ended; its end cannot be written down. Another `deploy` "
    "meanwhile begins nothing.",
    "second operator": "Another `deploy` for the same GPU before the step is applied is refused, "
    "with the name of the first.",
}


@dataclass(frozen=True, slots=True)
class Cell:
    playbook: str
    step: str
    fault: str

    def __str__(self) -> str:
        return f"{self.playbook}/{self.step}/{self.fault}".replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Record:
    """What became of a cell."""

    playbook: str
    step: str
    fault: str
    commit: str
    at: str
    """UTC."""
    seconds: float
    failure: str = ""
    """What did not hold; empty if all did."""
    exit_code: int = 0
    left: str = ""
    """On the GPU, when the host was whole again."""
    log: str = ""
    """How the audit log tells the run."""
    lock: str = ""
    mend: str = ""
    """The one further command."""
    ends: str = ""
    """What the GPU has after that."""

    @property
    def cell(self) -> Cell:
        return Cell(self.playbook, self.step, self.fault)


def cells() -> list[Cell]:
    """Without those of `forget`, for the reason that the page gives."""
    return [
        Cell(playbook, step.operation, fault)
        for playbook in names()
        if playbook != "forget"
        for step in load(playbook).steps
        for fault in FAULTS
    ]


def read(file: Path = RECORDS) -> dict[Cell, Record]:
    """The latest of each cell."""
    lines = file.read_text().splitlines() if file.exists() else []
    records = [Record(**json.loads(line)) for line in lines]
    return {record.cell: record for record in records}


def append(record: Record, file: Path = RECORDS) -> None:
    """One write of one line: two processes may run cells at once."""
    with file.open("a") as out:
        out.write(json.dumps(asdict(record)) + "\n")


def left_to_run(part: str = "1/1", file: Path = RECORDS) -> list[Cell]:
    """The cells of a part, like 2/3, that have not passed yet."""
    number, of = map(int, part.split("/"))
    records = read(file)
    mine = [cell for index, cell in enumerate(cells()) if index % of == number - 1]
    return [cell for cell in mine if cell not in records or records[cell].failure]


def commit() -> str:
    """Of the code that runs, with a plus sign if it was changed since."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    code = ["ddtree_ops_cli", "playbooks", "tests"]
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no", "--", *code],
        capture_output=True,
        text=True,
    )
    return (head.stdout.strip() or "unknown") + ("+" if changed.stdout else "")


def render(records: dict[Cell, Record]) -> str:
    """The page."""
    wanted = cells()
    run = [records[cell] for cell in wanted if cell in records]
    return "\n".join([*_head(wanted, run), *_tables(wanted, records)]) + "\n"


def _head(wanted: Sequence[Cell], run: Sequence[Record]) -> Iterator[str]:
    passed = [record for record in run if not record.failure]
    yield "# What faults leave of a rollout"
    yield ""
    yield (
        "Made by `make faults-rollout` from `docs/measurements/rollout-faults.jsonl`; not edited "
        "by hand. Each cell is a rollout on a host of the rig (real sshd and Docker, the lab "
        "engine with a small random pair, somebody else's container beside it) that a fault "
        "breaks off at a step. It has passed if then"
    )
    yield ""
    yield "- `ddtree status` says what Docker and the engine themselves say,"
    yield "- the other container is as it was,"
    yield "- the lock is free, or `ddtree lock show` names its holder,"
    yield "- the audit log tells the run and how it ended, or that it was cut off and where,"
    yield (
        "- **one** further command, `deploy` or (where something was kept) on every other step "
        "`rollback`, names the broken run and ends in a healthy service, with the lock free."
    )
    yield ""
    yield (
        "The playbook `forget` is left out: it ends what only a comparison started, and nothing of "
        "an operator's comes or goes by it."
    )
    yield ""
    missing = len(wanted) - len(run)
    yield (
        f"{len(passed)} of {len(wanted)} cells passed, {len(run) - len(passed)} failed, "
        f"{missing} were not run."
    )
    if run:
        commits = Counter(record.commit for record in run)
        listed = ", ".join(f"`{name}` ({count})" for name, count in commits.most_common())
        first, last = min(r.at for r in run), max(r.at for r in run)
        mean = sum(record.seconds for record in run) / len(run)
        yield (
            f"Run from {first} to {last}, {mean:.0f} seconds a cell on the mean, at commits "
            f"{listed}."
        )
    yield ""
    yield (
        "*Old* is what ran before the command, *new* what it wants to run, *earlier* what was kept "
        "before. *Not settled*: Docker would not start it again by itself yet, as the rollout did "
        "not come to its end."
    )


def _tables(wanted: Sequence[Cell], records: dict[Cell, Record]) -> Iterator[str]:
    for fault, what in FAULTS.items():
        yield ""
        yield f"## {fault[0].upper()}{fault[1:]}"
        yield ""
        yield what
        yield ""
        yield "| playbook | step | exit | left on the GPU | lock | audit log | mend | ends in |"
        yield "|---|---|---|---|---|---|---|---|"
        for cell in wanted:
            if cell.fault == fault:
                yield f"| {cell.playbook} | {cell.step} | {_row(records.get(cell))} |"


def _row(record: Record | None) -> str:
    if record is None:
        return "**not run** | | | | |"
    if record.failure:
        return f"**failed** | {record.failure[:200].replace('|', '/')} | | | |"
    code = "killed" if record.exit_code == -signal.SIGKILL else str(record.exit_code)
    told = (record.left, record.lock, record.log, f"`{record.mend}`", record.ends)
    return " | ".join((code, *told))


def main() -> int:
    records = read()
    page = render(records)
    sys.stdout.write(page)
    PAGE.write_text(page)
    return 1 if left_to_run() else 0


WHOLE = bool(os.environ.get("DDTREE_ALL_FAULTS"))
"""Every cell that has not passed yet, and a record of each; else a sample."""

if __name__ == "__main__":
    sys.exit(main())
