"""What is counted at the roots is what the lab engine accepts there."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ddtree_ops_cli.lab.decode import Engine, Sampling, Speculation
from ddtree_ops_cli.lab.tokenizer import Tokenizer
from tools.draft_anatomy import BUDGET, MAX_NEW_TOKENS, WEIGHTS, Anatomy, entropies, roots

ASKED = [{"role": "user", "content": "Explain the linear search algorithm in 4 sentences."}]


def test_a_chain_and_a_tree_have_right_what_the_engine_accepts_of_them() -> None:
    prompt = Tokenizer.load(WEIGHTS / "target").chat(ASKED, {})
    weights = WEIGHTS / "target", WEIGHTS / "drafter"
    linear = Engine.load(*weights, Speculation("DFLASH"))
    steps = list(linear.generate(prompt, Sampling(MAX_NEW_TOKENS)))[1:]
    tree = Engine.load(*weights, Speculation("DDTREE", budget=BUDGET, chain_seed=0))
    _, first, *_ = tree.generate(prompt, Sampling(MAX_NEW_TOKENS))

    anatomy = Anatomy()
    for logits, said in roots(linear, prompt):
        anatomy.add(logits, said)

    assert len(steps) > 3
    # The engine counts what it accepted beyond the end of the answer too.
    assert anatomy.chain[:-1] == [done.accepted for done in steps[:-1]]
    assert anatomy.tree[0] == first.accepted
    assert anatomy.ranks.total() == anatomy.ended.count(False) == len(anatomy.entropy_failed)
    assert len(anatomy.entropy_right) == sum(anatomy.chain)


def test_entropy_is_in_nats() -> None:
    logits = np.array([[0.0] * 8, [100.0] + [0.0] * 7], dtype=np.float32)
    even, sure = entropies(logits)
    assert even == pytest.approx(math.log(8))
    assert sure == pytest.approx(0, abs=1e-6)
