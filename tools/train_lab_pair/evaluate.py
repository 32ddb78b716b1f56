"""Accept lengths on held-out prompts at temperature 0: linear, and trees of several budgets.

Exact, without an engine: speculation changes no output, so the target's greedy answer is known
beforehand, and each verify step is a walk of that answer through the draft tree of its root.
Accept length is 1 + accepted drafts / verify steps, the bonus token counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from . import tree
from .data import Rows
from .drafter import Drafter
from .generate import answer
from .shapes import END_OF_TEXT, IM_END
from .target import Target

BUDGETS = (8, 16, 32, 64)
SEEDS = (0, 2, 4, 6, 8, 12, 15)
TOPK_CAP = 8
MAX_NEW_TOKENS = 160
# One prompt: candidates[anchor][depth] for each place of the answer.
Drafts = list[list[tree.Candidates]]


@dataclass(slots=True)
class Count:
    steps: int = 0
    accepted: int = 0
    off_spine: int = 0
    tokens: int = 0

    @property
    def accept_length(self) -> float:
        return 1 + self.accepted / self.steps if self.steps else 0.0


@dataclass(slots=True)
class Tally:
    """Counts by (family, arm)."""

    counts: dict[tuple[str, str], Count] = field(default_factory=dict)

    def add(self, family: str, arm: str, count: Count) -> None:
        for name in (family, "all"):
            total = self.counts.setdefault((name, arm), Count())
            total.steps += count.steps
            total.accepted += count.accepted
            total.off_spine += count.off_spine
            total.tokens += count.tokens

    def as_table(self) -> dict[str, dict[str, dict[str, float]]]:
        table: dict[str, dict[str, dict[str, float]]] = {}
        for (family, arm), c in self.counts.items():
            table.setdefault(family, {})[arm] = {
                "accept_length": round(c.accept_length, 4),
                "steps": c.steps,
                "accepted": c.accepted,
                "off_spine": c.off_spine,
            }
        return table


@torch.no_grad()
def drafts(
    target: Target, drafter: Drafter, prompts: Sequence[Sequence[int]], answers: list[list[int]]
) -> list[Drafts]:
    """The drafter's best candidates at every place of every answer."""
    device = next(target.parameters()).device
    result: list[Drafts] = [[] for _ in prompts]
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]) + len(answers[i]))
    for start in range(0, len(order), 64):
        chosen = order[start : start + 64]
        width = max(len(prompts[i]) + len(answers[i]) for i in chosen)
        places = max(len(answers[i]) for i in chosen)
        tokens = torch.full((len(chosen), width), END_OF_TEXT)
        anchors = torch.empty(len(chosen), places, dtype=torch.int64)
        for row, i in enumerate(chosen):
            both = [*prompts[i], *answers[i]]
            tokens[row, : len(both)] = torch.tensor(both)
            anchors[row] = torch.arange(places) + len(prompts[i])
        tokens, anchors = tokens.to(device), anchors.clamp(max=width - 1).to(device)
        _, features = target(tokens, keep_layers=drafter.shape.target_layer_ids)
        hidden = drafter(features, tokens.gather(1, anchors), anchors, target.model.embed_tokens)
        best = target.lm_head(hidden).float().log_softmax(-1).topk(TOPK_CAP)
        values, ids = best.values.cpu().tolist(), best.indices.cpu().tolist()
        for row, i in enumerate(chosen):
            result[i] = [
                [list(zip(v, t, strict=True)) for v, t in zip(vs, ts, strict=True)]
                for vs, ts in zip(values[row][: len(answers[i])], ids[row], strict=False)
            ]
    return result


def count_steps(said: Sequence[int], candidates: Drafts, budget: int, chain_seed: int) -> Count:
    """Speculate over one known answer; the first token comes from the prefill."""
    count = Count(tokens=len(said))
    place = 0
    while place < len(said) - 1:
        children, spine = tree.grow(candidates[place], budget, chain_seed)
        accepted, off = tree.walk(children, spine, said[place + 1 :])
        count.steps += 1
        count.accepted += accepted
        count.off_spine += off
        place += accepted + 1
    return count


def evaluate(
    target: Target, drafter: Drafter, held_out: Rows, names: Sequence[str]
) -> tuple[dict[str, Any], list[list[int]]]:
    """The acceptance table by family and arm, and the answers it was measured on."""
    prompts = [held_out.prompt(i) for i in range(len(held_out))]
    answers = answer(target, prompts, max_new_tokens=MAX_NEW_TOKENS)
    candidates = drafts(target, drafter, [p.tolist() for p in prompts], answers)
    tally = Tally()
    block = drafter.shape.block_size
    for i, (said, drafted) in enumerate(zip(answers, candidates, strict=True)):
        family = names[int(held_out.families[i])]
        tally.add(family, "linear", count_steps(said, drafted, block - 1, block - 1))
        for budget in BUDGETS:
            for seed in SEEDS:
                if seed < min(budget, block) or seed == 0:
                    arm = f"budget {budget} seed {seed}"
                    tally.add(family, arm, count_steps(said, drafted, budget, seed))
    ended = sum(said[-1] == IM_END for said in answers)
    return {
        "prompts": len(prompts),
        "answers that end": ended,
        "tokens": sum(map(len, answers)),
        "accept_length": tally.as_table(),
    }, answers
