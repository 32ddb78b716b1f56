"""Each planted fault must be seen by the comparison that the other tests rest on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sglang_gpu.answers import Server
from tests.sglang_gpu.fleet import faults, on
from tests.sglang_gpu.judge import TIE, compared
from tests.sglang_gpu.questions import suite
from tests.sglang_gpu.test_greedy import once

Serve = Callable[[str], Server]
Note = Callable[..., None]


@pytest.mark.parametrize("name", on(*(f"fault-{fault}" for fault in sorted(faults()))))
def test_a_fault_is_more_than_a_tie(name: str, server: Serve, folder: Path, note: Note) -> None:
    faulty, linear = server(name), server("linear-bf16")
    reference = once(folder, "faults", lambda: linear.outputs(suite(), 160))
    verdict = compared(suite(), faulty.outputs(suite(), 160), reference)
    note(server=name, verdict=str(verdict))
    assert verdict.worst > TIE["bfloat16"], verdict
