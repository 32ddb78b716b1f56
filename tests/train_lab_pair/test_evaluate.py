"""What the evaluator counts is what the lab engine does, on the shipped pair."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from tokenizers import Tokenizer

from ddtree_ops_cli.lab.decode import Engine, Sampling, Speculation
from tools.train_lab_pair import checkpoint, data
from tools.train_lab_pair.evaluate import count_steps, drafts
from tools.train_lab_pair.questions import FAMILIES, draw

WEIGHTS = Path(__file__).parents[2] / "ddtree_ops_cli/lab/weights"
ARMS = {
    "linear": (Speculation("DFLASH"), 15, 15),
    "best-first": (Speculation("DDTREE", budget=16, chain_seed=0), 16, 0),
    "seeded": (Speculation("DDTREE", budget=32, chain_seed=12), 32, 12),
}


def test_the_engine_takes_the_steps_that_were_counted() -> None:
    tokenizer = Tokenizer.from_file(str(WEIGHTS / "target" / "tokenizer.json"))
    rng = random.Random(7)
    prompts = [
        data.encode_messages(tokenizer, draw(ask, rng, held_out=True).messages)
        for ask in FAMILIES.values()
    ]
    sampling = Sampling(max_new_tokens=48)
    plain = Engine.load(WEIGHTS / "target", None, Speculation("none"))
    answers = [[t for s in plain.generate(p, sampling) for t in s.tokens] for p in prompts]
    target = checkpoint.load_target(WEIGHTS / "target", torch.device("cpu"))
    drafter = checkpoint.load_drafter(WEIGHTS / "drafter", torch.device("cpu"))
    candidates = drafts(target, drafter, prompts, answers)

    for speculation, budget, seed in ARMS.values():
        engine = Engine.load(WEIGHTS / "target", WEIGHTS / "drafter", speculation)
        for prompt, said, drafted in zip(prompts, answers, candidates, strict=True):
            if len(said) == sampling.max_new_tokens:
                continue  # the engine may accept past the length that it was allowed
            _, *steps = engine.generate(prompt, sampling)
            count = count_steps(said, drafted, budget, seed)
            assert len(steps) == count.steps
            assert sum(step.accepted for step in steps) == count.accepted
            assert sum(step.off_spine for step in steps) == count.off_spine
