"""Each planted fault must be seen in the tokens of a server, or the other tests prove nothing.

Faults of recurrent layers on the hybrid pair, faults of attention on the dense one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sglang_cpu.engine import FAULTS, plant
from tests.sglang_cpu.reference import Prompts, dense_prompts, greedy, lively_prompts
from tests.sglang_cpu.server import serving
from tests.sglang_cpu.test_server import NO_OVERLAP, NO_RADIX, tree

ON_HYBRID = ("state-of-the-neighbour", "conv-of-the-neighbour", "commit-one-off")
ON_DENSE = ("mask-of-a-chain",)


def answers_of(
    fault: str, engine: Path, pair: tuple[Path, Path], prompts: Prompts, tokens: int, folder: Path
) -> Prompts:
    faulty = plant(fault, engine, folder / "engine")
    flags = (*tree(8), NO_OVERLAP, NO_RADIX)
    with serving(faulty, *pair, *flags, log=folder / "server.log") as server:
        answers = server.generate_together(prompts, tokens)
    return [answer["output_ids"] for answer in answers]


@pytest.mark.parametrize("fault", ON_HYBRID)
def test_a_fault_of_the_recurrent_layers_changes_the_tokens(
    fault: str, engine: Path, hybrid: tuple[Path, Path], tmp_path: Path
) -> None:
    tokens = 12
    prompts = lively_prompts(*hybrid, tokens, budget=8)[:1]
    answers = answers_of(fault, engine, hybrid, prompts, tokens, tmp_path)
    assert answers != greedy(hybrid[0], prompts, tokens)


@pytest.mark.parametrize("fault", ON_DENSE)
def test_a_fault_of_attention_changes_the_tokens(
    fault: str, engine: Path, dense: tuple[Path, Path], tmp_path: Path
) -> None:
    tokens = 16
    prompts = dense_prompts()
    answers = answers_of(fault, engine, dense, prompts, tokens, tmp_path)
    assert answers != greedy(dense[0], prompts, tokens)


def test_every_fault_is_planted() -> None:
    assert {*ON_HYBRID, *ON_DENSE} == {patch.stem for patch in FAULTS.glob("*.patch")}
