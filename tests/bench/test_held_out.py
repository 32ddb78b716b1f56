"""The suite `held-out` is what the training generator holds out, and nothing else."""

from __future__ import annotations

import random

from ddtree_ops_cli.bench.prompts import SUITES, load_suite
from tools.held_out_suite import lines
from tools.train_lab_pair.questions import FAMILIES, draw

DRAWS = 3000


def test_the_file_is_what_its_program_writes() -> None:
    """If this fails after a change of the generator, run `python -m tools.held_out_suite`."""
    assert (SUITES / "held-out.jsonl").read_text().splitlines() == list(lines())


def test_training_never_draws_one_of_its_prompts() -> None:
    asked = {prompt.text for prompt in load_suite("held-out").prompts}
    rng = random.Random(0)
    for ask in FAMILIES.values():
        for _ in range(DRAWS):
            exchange = draw(ask, rng, held_out=False)
            said = {turn["content"] for turn in exchange.messages if turn["role"] == "user"}
            assert not said & asked
