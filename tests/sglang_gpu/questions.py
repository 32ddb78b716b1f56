"""What is asked: held-out prompts of the lab pair, as tokens."""

from __future__ import annotations

import random
from functools import cache

from ddtree_ops_cli.bench.prompts import load_suite
from ddtree_ops_cli.lab.tokenizer import Tokenizer
from tests.sglang_gpu.fleet import WEIGHTS
from tools.train_lab_pair.questions import FAMILIES, draw

Prompt = list[int]
Message = dict[str, str]


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.load(WEIGHTS / "target")


def as_tokens(messages: list[Message]) -> Prompt:
    return tokenizer().chat(messages, {})


def user(text: str) -> Message:
    return {"role": "user", "content": text}


@cache
def suite() -> tuple[Prompt, ...]:
    """The sixteen of the held-out suite, four families in turn."""
    prompts = load_suite("held-out").prompts
    ordered = sorted(prompts, key=lambda prompt: (int(prompt.id.rsplit("-", 1)[1]), prompt.id))
    return tuple(as_tokens([user(prompt.text)]) for prompt in ordered)


def drawn(count: int, seed: int) -> list[Prompt]:
    """Held-out exchanges up to the last answer, the families in turn."""
    chance = random.Random(seed)
    families = list(FAMILIES.values())
    prompts = []
    for index in range(count):
        exchange = draw(families[index % len(families)], chance, held_out=True)
        messages = exchange.messages
        prompts.append(
            as_tokens(messages[:-1] if messages[-1]["role"] == "assistant" else messages)
        )
    return prompts
