"""What a server must be equal to: transformers' greedy tokens, and the lab engine's steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from ddtree_ops_cli.lab.decode import Engine, Sampling, Speculation, Step

Prompts = list[list[int]]


def random_prompts(count: int, seed: int = 0) -> Prompts:
    random = np.random.default_rng(seed)
    return [random.integers(0, 300, int(random.integers(3, 24))).tolist() for _ in range(count)]


def lively_prompts(target: Path, drafter: Path, tokens: int, budget: int = 16) -> Prompts:
    """Three prompts after which many accepted drafts are off the spine."""
    lab = Engine.load(target, drafter, Speculation("DDTREE", budget=budget))

    def off_spine(prompt: Sequence[int]) -> int:
        return sum(step.off_spine for step in lab_steps(lab, prompt, tokens))

    return sorted(random_prompts(60), key=off_spine, reverse=True)[:3]


def dense_prompts() -> Prompts:
    """Found by trial with the dense pair: after the first and the last, drafts off the spine."""
    drawn = random_prompts(8, seed=4)
    return [drawn[0], drawn[1], drawn[7]]


def crossing_prompts(target: Path, drafter: Path, interval: int, budget: int) -> Prompts:
    """Prompts, three at most, after which the committed length passes `interval` among accepted
    drafts that are all off the spine."""
    lab = Engine.load(target, drafter, Speculation("DDTREE", budget=budget))

    def crosses_off_spine(prompt: Sequence[int]) -> bool:
        committed = len(prompt)
        for step in lab_steps(lab, prompt, 12)[1:]:
            behind = interval - committed - 1
            if behind <= step.accepted:
                return behind > 0 and step.off_spine == step.accepted
            committed += step.accepted + 1
        return False

    drawn = [(prompt * interval)[: interval - 3] for prompt in random_prompts(60, seed=3)]
    return [prompt for prompt in drawn if crosses_off_spine(prompt)][:3]


def lab_steps(lab: Engine, prompt: Sequence[int], tokens: int) -> list[Step]:
    return list(lab.generate(prompt, Sampling(max_new_tokens=tokens, ignore_eos=True)))


def greedy_digits(target: Path, prompt: list[int], count: int) -> str:
    """transformers' greedy where only tokens of one digit each are allowed."""
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    vocabulary = Tokenizer.from_file(str(target / "tokenizer.json")).get_vocab()
    digits = {vocabulary[digit]: digit for digit in "0123456789"}
    allowed = sorted(digits)
    tokens, text = list(prompt), ""
    for _ in range(count):
        logits = model(torch.tensor([tokens])).logits[0, -1]
        tokens.append(allowed[int(logits[allowed].argmax())])
        text += digits[tokens[-1]]
    return text


def greedy(target: Path, prompts: Prompts, tokens: int) -> Prompts:
    """transformers' own class, in float32, without a stop token."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    answers = []
    for prompt in prompts:
        whole = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            eos_token_id=10**6,
        )
        answers.append(whole[0, len(prompt) :].tolist())
    return answers
