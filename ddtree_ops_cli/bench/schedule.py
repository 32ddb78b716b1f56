"""Who runs when. Pure: the same seed gives the same order on every machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt on both arms, one right after the other."""

    prompt: str
    arms: tuple[str, str]
    """In the order in which they run."""


def round_order(
    index: int, prompts: Sequence[str], arms: tuple[str, str], *, seed: int
) -> tuple[Pair, ...]:
    """The pairs of round `index` (from 0).

    Prompts are shuffled, so that none always follows the same other. Which arm goes first
    alternates for each prompt from round to round, and from prompt to prompt inside a round: over
    an even number of rounds each arm goes first equally often, for every prompt.
    """
    pairs = [
        Pair(prompt, arms if (index + position) % 2 == 0 else (arms[1], arms[0]))
        for position, prompt in enumerate(prompts)
    ]
    random.Random(f"{seed}:{index}").shuffle(pairs)
    return tuple(pairs)


@dataclass(frozen=True, slots=True)
class Block:
    """All prompts on one arm, while the other is not there."""

    arm: str
    prompts: tuple[str, ...]
    """In the order in which they run."""


def block_order(
    index: int, prompts: Sequence[str], arms: tuple[str, str], *, seed: int
) -> tuple[Block, Block]:
    """The two blocks of round `index` (from 0), for arms that take turns on one GPU.

    The order of the arms alternates from round to round (A B, B A, A B, ...), so that what drifts
    steadily is taken out with the order. Both blocks of a round ask the prompts in one order.
    """
    order = list(prompts)
    random.Random(f"{seed}:{index}").shuffle(order)
    first, second = arms if index % 2 == 0 else (arms[1], arms[0])
    return Block(first, tuple(order)), Block(second, tuple(order))
