"""One generated exchange, and the rule that holds some contents out of the training text."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass

HELD_OUT_PER_CENT = 8
SYSTEM_PROMPTS = ("You are a helpful assistant.", "Answer clearly.", "Be brief and exact.")


@dataclass(frozen=True, slots=True)
class Exchange:
    """`key` names the content (what is asked about), whatever words or numbers dress it."""

    key: str
    turns: tuple[tuple[str, str], ...]
    system: str | None = None

    @property
    def messages(self) -> list[dict[str, str]]:
        """Everything up to, and without, the last answer."""
        said = [] if self.system is None else [{"role": "system", "content": self.system}]
        for user, assistant in self.turns:
            said.append({"role": "user", "content": user})
            said.append({"role": "assistant", "content": assistant})
        return said[:-1]

    @property
    def answer(self) -> str:
        return self.turns[-1][1]


Ask = Callable[[random.Random], Exchange]


def is_held_out(key: str) -> bool:
    """A fixed share of the contents, chosen by hash: independent of seeds and of phrasing.

    What can only be known by having been told (`known ...`: capitals, greetings, spellings) and
    the story's prompts are always trained on.
    """
    if key.startswith(("story", "known")):
        return False
    return hashlib.sha256(key.encode()).digest()[0] * 100 < HELD_OUT_PER_CENT * 256


def draw(ask: Ask, rng: random.Random, *, held_out: bool) -> Exchange:
    """Draw exchanges until one is on the wanted side of the hold-out."""
    while True:
        exchange = ask(rng)
        if is_held_out(exchange.key) == held_out:
            return exchange


def maybe_system(rng: random.Random) -> str | None:
    return rng.choice(SYSTEM_PROMPTS) if rng.random() < 0.15 else None
