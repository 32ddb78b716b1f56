"""Each planted fault must be seen in the tokens of a server, or the other tests prove nothing.

Faults of recurrent layers on the hybrid pair, faults of attention on the dense one, faults of the
states that prefix reuse starts from in a second turn.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from ddtree_ops_cli.lab.decode import Engine, Speculation
from tests.sglang_cpu.engine import FAULTS, plant
from tests.sglang_cpu.reference import (
    Prompts,
    crossing_prompts,
    dense_prompts,
    greedy,
    lab_steps,
    lively_prompts,
)
from tests.sglang_cpu.server import Server, serving
from tests.sglang_cpu.test_server import EARLY_STATES, NO_OVERLAP, NO_RADIX, tree

ON_HYBRID = ("state-of-the-neighbour", "conv-of-the-neighbour", "commit-one-off")
ON_DENSE = ("cache-left-behind",)
OF_KEPT_STATES = ("kept-state-of-the-neighbour", "kept-state-still-written")


def faulty_server(
    fault: str, engine: Path, pair: tuple[Path, Path], budget: int, folder: Path
) -> AbstractContextManager[Server]:
    faulty = plant(fault, engine, folder / "engine")
    flags = (*tree(budget), NO_OVERLAP, NO_RADIX)
    return serving(faulty, *pair, *flags, log=folder / "server.log")


def answers_of(server: AbstractContextManager[Server], prompts: Prompts, tokens: int) -> Prompts:
    with server as running:
        answers = running.generate_together(prompts, tokens)
    return [answer["output_ids"] for answer in answers]


@pytest.mark.parametrize("fault", ON_HYBRID)
def test_a_fault_of_the_recurrent_layers_changes_the_tokens(
    fault: str, engine: Path, hybrid: tuple[Path, Path], tmp_path: Path
) -> None:
    tokens = 12
    prompts = lively_prompts(*hybrid, tokens, budget=8)[:1]
    faulty = faulty_server(fault, engine, hybrid, 8, tmp_path)
    expected = greedy(hybrid[0], prompts, tokens)
    lab = Engine.load(*hybrid, Speculation("DDTREE", budget=8))
    steps = [lab_steps(lab, prompt, tokens) for prompt in prompts]
    assert expected == [[token for step in each for token in step.tokens] for each in steps]
    answers = answers_of(faulty, prompts, tokens)
    assert answers != expected


@pytest.mark.parametrize("fault", ON_DENSE)
def test_a_fault_of_attention_changes_the_tokens(
    fault: str, engine: Path, dense: tuple[Path, Path], tmp_path: Path
) -> None:
    tokens = 16
    prompts = dense_prompts()
    faulty = faulty_server(fault, engine, dense, 16, tmp_path)
    answers = answers_of(faulty, prompts, tokens)
    assert answers != greedy(dense[0], prompts, tokens)


@pytest.mark.parametrize("fault", OF_KEPT_STATES)
def test_a_fault_of_kept_states_changes_what_a_second_turn_says(
    fault: str, engine: Path, hybrid: tuple[Path, Path], tmp_path: Path
) -> None:
    tokens = 12
    prompts = crossing_prompts(*hybrid, interval=64, budget=17)
    answers = greedy(hybrid[0], prompts, tokens)
    faulty = plant(fault, engine, tmp_path / "engine")
    log = tmp_path / "server.log"
    with serving(faulty, *hybrid, *tree(17), *EARLY_STATES, log=log) as server:
        first = [server.generate(prompt, tokens) for prompt in prompts]
        longer = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
        second = [server.generate(prompt, tokens) for prompt in longer]
    assert [answer["output_ids"] for answer in first] == answers
    assert all(answer["meta_info"]["cached_tokens"] for answer in second)
    assert [answer["output_ids"] for answer in second] != greedy(hybrid[0], longer, tokens)


def test_every_fault_is_planted() -> None:
    assert {*ON_HYBRID, *ON_DENSE, *OF_KEPT_STATES} == {
        patch.stem for patch in FAULTS.glob("*.patch")
    }
