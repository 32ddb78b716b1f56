"""Where the accept length of a family comes from, and what a tree can add to it.

    python -m tools.train_lab_pair prepare --work DIR
    python -m tools.draft_anatomy DIR/held_out.jsonl --prompts 60 --json FILE

The lab engine answers held-out prompts greedily with linear DFlash. At the root of each verify step
the drafter's distributions are kept and asked what a chain and a best-first tree of 16 nodes accept
of the same continuation, how sure the drafter was, and at which rank the target's token stands
where the chain first fails.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

# Before NumPy, which reads the number of BLAS threads when it is imported.
import ddtree_ops_cli.lab  # noqa: F401

# isort: split
import numpy as np

from ddtree_ops_cli.lab.arrays import Floats
from ddtree_ops_cli.lab.decode import Engine, Sampling, Speculation
from ddtree_ops_cli.lab.drafter import Drafter
from ddtree_ops_cli.lab.tokenizer import Tokenizer
from ddtree_ops_cli.lab.tree import DraftTree, best_first_tree, top_candidates
from ddtree_ops_cli.output.progress import step
from ddtree_ops_cli.output.tables import show

WEIGHTS = Path(__file__).parent.parent / "ddtree_ops_cli" / "lab" / "weights"
BUDGET = 16
TOPK_CAP = 8
MAX_NEW_TOKENS = 160
RANKS = ("2", "3", "4 to 8", "beyond")


class Listening:
    """A drafter that keeps the logits it gave."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.given: list[Floats] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drafter, name)

    def draft(self, context: Any, root: int) -> Floats:
        self.given.append(self._drafter.draft(context, root))
        return self.given[-1]


@dataclass(slots=True)
class Anatomy:
    """What was seen at the roots of one family's verify steps."""

    chain: list[int] = field(default_factory=list)
    """Drafts that the chain has right."""
    tree: list[int] = field(default_factory=list)
    """Drafts that a best-first tree of BUDGET nodes has right, at the same roots."""
    spine: list[int] = field(default_factory=list)
    """How deep that tree follows the chain."""
    ended: list[bool] = field(default_factory=list)
    """Whether the chain was right to the end of the answer, or of the block."""
    ranks: Counter[str] = field(default_factory=Counter)
    """Of the target's token at the chain's first failure."""
    entropy_right: list[float] = field(default_factory=list)
    """Nats, of the distributions whose best token was right, up to the first failure."""
    entropy_failed: list[float] = field(default_factory=list)
    right_on: list[bool] = field(default_factory=list)
    """Whether the best token is right at a depth before which all were."""
    right_after: list[bool] = field(default_factory=list)
    """Whether the best token is right one deeper than the first failure."""

    def add(self, logits: Floats, said: Sequence[int]) -> None:
        """`logits` [block - 1, vocabulary] at a root, and what the target says after it."""
        best = logits.argmax(-1).tolist()
        depth = min(len(said), len(best))
        right = next((i for i in range(depth) if best[i] != said[i]), depth)
        grown = best_first_tree(0, top_candidates(logits, TOPK_CAP), BUDGET)
        self.chain.append(right)
        self.tree.append(accepted(grown, said))
        self.spine.append(len(grown.spine) - 1)
        self.ended.append(right == depth)
        self.entropy_right += entropies(logits[:right])
        self.right_on += [True] * right
        if right == depth:
            return
        self.right_on.append(False)
        self.entropy_failed += entropies(logits[right : right + 1])
        rank = 1 + int((logits[right] > logits[right, said[right]]).sum())
        self.ranks["beyond" if rank > TOPK_CAP else "4 to 8" if rank > 3 else str(rank)] += 1
        if right + 1 < depth:
            self.right_after.append(best[right + 1] == said[right + 1])

    def figures(self) -> dict[str, float]:
        more = [t - c for c, t in zip(self.chain, self.tree, strict=True)]
        roots, failures = len(self.chain), sum(self.ranks.values())
        return {
            "roots": roots,
            "chain": fmean(self.chain),
            "tree": fmean(self.tree),
            "spine": fmean(self.spine),
            "to the end": fmean(self.ended),
            "tree reaches further": sum(m > 0 for m in more) / roots,
            "won a root": sum(m for m in more if m > 0) / roots,
            "tree falls short": sum(m < 0 for m in more) / roots,
            "lost a root": -sum(m for m in more if m < 0) / roots,
            "right on the chain": fmean(self.right_on),
            "right after a failure": fmean(self.right_after),
            "entropy, right": fmean(self.entropy_right),
            "entropy, failed": fmean(self.entropy_failed),
            **{f"rank {rank}": self.ranks[rank] / failures for rank in RANKS},
        }


def entropies(logits: Floats) -> list[float]:
    shifted = logits - logits.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    found: list[float] = (-(np.exp(log_p) * log_p).sum(-1)).tolist()
    return found


def accepted(tree: DraftTree, said: Sequence[int]) -> int:
    """Nodes on the path from the root that says what the target says."""
    node, depth = 0, 0
    children = {
        (parent, token): child
        for child, (parent, token) in enumerate(
            zip(tree.ancestry.parents.tolist(), tree.tokens.tolist(), strict=True)
        )
        if child
    }
    while depth < len(said) and (child := children.get((node, said[depth]))) is not None:
        node, depth = child, depth + 1
    return depth


def roots(engine: Engine, prompt: Sequence[int]) -> Iterator[tuple[Floats, list[int]]]:
    """Of each verify step: the drafter's logits, and the rest of the answer after the root."""
    assert engine.drafter is not None
    listening = Listening(engine.drafter)
    engine.drafter = listening  # type: ignore[assignment]
    try:
        steps = list(engine.generate(prompt, Sampling(MAX_NEW_TOKENS)))
    finally:
        engine.drafter = listening._drafter
    answer = [token for done in steps for token in done.tokens]
    place = 0
    for logits, done in zip(listening.given, steps[1:], strict=True):
        yield logits, answer[place + 1 :]
        place += len(done.tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("held_out", type=Path, help="held_out.jsonl of `prepare`")
    parser.add_argument("--prompts", type=int, default=60, help="of each family, the first ones")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    engine = Engine.load(WEIGHTS / "target", WEIGHTS / "drafter", Speculation("DFLASH"))
    tokenizer = Tokenizer.load(WEIGHTS / "target")
    families: dict[str, Anatomy] = {}
    taken: Counter[str] = Counter()
    with step("held-out prompts") as say:
        for line in options.held_out.read_text().splitlines():
            asked = json.loads(line)
            family = asked["family"]
            if taken[family] == options.prompts:
                continue
            taken[family] += 1
            prompt = tokenizer.chat(asked["messages"], {})
            for logits, said in roots(engine, prompt):
                families.setdefault(family, Anatomy()).add(logits, said)
            say(str(taken.total()))
    found = {family: anatomy.figures() for family, anatomy in families.items()}
    names = list(next(iter(found.values())))
    show(
        ("per root of a chain's verify step", *found),
        [(name, *(_cell(found[family][name]) for family in found)) for name in names],
    )
    if options.json:
        document = {"prompts": dict(taken), "budget": BUDGET, "topk_cap": TOPK_CAP, **found}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


def _cell(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3f}"


if __name__ == "__main__":
    main()
