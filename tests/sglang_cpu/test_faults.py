"""Each planted fault must be seen in the tokens of a server, or the other tests prove nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sglang_cpu.engine import FAULTS, plant
from tests.sglang_cpu.reference import Prompts, greedy, lively_prompts
from tests.sglang_cpu.server import serving
from tests.sglang_cpu.test_server import NO_OVERLAP, NO_RADIX, tree

TOKENS = 12
NAMES = sorted(patch.stem for patch in FAULTS.glob("*.patch"))


@pytest.fixture(scope="module")
def prompts(hybrid: tuple[Path, Path]) -> Prompts:
    return lively_prompts(*hybrid, TOKENS, budget=8)[:1]


@pytest.mark.parametrize("fault", NAMES)
def test_a_planted_fault_changes_the_tokens(
    fault: str, engine: Path, hybrid: tuple[Path, Path], prompts: Prompts, tmp_path: Path
) -> None:
    faulty = plant(fault, engine, tmp_path / "engine")
    log = tmp_path / "server.log"
    with serving(faulty, *hybrid, *tree(8), NO_OVERLAP, NO_RADIX, log=log) as server:
        answers = [answer["output_ids"] for answer in server.generate_together(prompts, TOKENS)]
    assert answers != greedy(hybrid[0], prompts, TOKENS)


def test_the_faults_of_the_issue_are_among_those_planted() -> None:
    assert {"state-of-the-neighbour", "conv-of-the-neighbour", "commit-one-off"} <= set(NAMES)
