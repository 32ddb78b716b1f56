"""Writes docs/doctor.md: every check of the doctor and the fixture that makes it fail.

python -m tools.doctor_table
"""

from __future__ import annotations

import json
from pathlib import Path

from ddtree_ops_cli.doctor.portable.catalogue import CHECKS

_PROJECT = Path(__file__).parent.parent
_FIXTURES = _PROJECT / "tests/doctor/failing.json"
DOCUMENT = _PROJECT / "docs/doctor.md"
_BY = {"artefact": "library", "kernels": "library", "recorded": "recorded", "limited": "process"}
_HEAD = """# The doctor's checks

Written by `python -m tools.doctor_table` from the checks and from the fixtures that make them fail
in the tests (`tests/doctor/failing.json`); a test compares. *Library* says that the fixture is a
real compiled library (`tests/doctor/artefacts/build.sh`) or was read from published wheels;
*recorded* that real compilers said it (`tests/doctor/recorded-compilers.json`); *process* that a
process with those limits was looked at; *facts* that single facts of a healthy host were changed.

| check | severity | on a healthy host | prevents | fails on | by |
|---|---|---|---|---|---|
"""


def text() -> str:
    fixtures = json.loads(_FIXTURES.read_text(encoding="utf-8"))
    rows = []
    for check in CHECKS:
        case = fixtures[check.id]
        by = next((word for key, word in _BY.items() if key in case), "facts")
        cells = (
            f"`{check.id}`",
            check.severity,
            check.title,
            f"{check.prevents} ({check.reference})",
            case["about"],
            by,
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    DOCUMENT.write_text(text(), encoding="utf-8")
