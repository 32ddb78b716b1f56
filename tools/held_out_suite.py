"""Write the suite `held-out`: prompts of the training generator that training never saw.

    python -m tools.held_out_suite > ddtree_ops_cli/bench/suites/held-out.jsonl

The generator holds out whole contents by a hash of their key; here are a few of each family, of
one turn and without a system prompt, because a suite sends one message of the user.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from tools.train_lab_pair.questions import FAMILIES, Ask, Exchange, draw

SEED = 20260
PROMPTS_A_FAMILY = 4


def lines() -> Iterator[str]:
    rng = random.Random(SEED)
    for family, ask in FAMILIES.items():
        for number, exchange in enumerate(_different(ask, rng), 1):
            [message] = exchange.messages
            name = f"{family.replace(' ', '-')}-{number}"
            prompt = {"id": name, "family": family, "prompt": message["content"]}
            yield json.dumps(prompt, ensure_ascii=False)


def _different(ask: Ask, rng: random.Random) -> Iterator[Exchange]:
    """Exchanges about different contents."""
    seen: set[str] = set()
    while len(seen) < PROMPTS_A_FAMILY:
        exchange = draw(ask, rng, held_out=True)
        if len(exchange.messages) == 1 and exchange.key not in seen:
            seen.add(exchange.key)
            yield exchange


if __name__ == "__main__":
    print("\n".join(lines()))
