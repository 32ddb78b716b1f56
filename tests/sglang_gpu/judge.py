"""Whether two greedy answers differ by more than rounding.

Kernels of another shape round otherwise, and where the target's two best tokens are nearly equal
that flips a choice; from there on the texts are unrelated. So an answer is judged at its first
different token, by the lab engine's logits (float32 on the host) after the common tokens: both
choices must be within `TIE` of the best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ddtree_ops_cli.lab.decode import Engine, Speculation
from tests.sglang_gpu.answers import Outputs
from tests.sglang_gpu.fleet import WEIGHTS
from tests.sglang_gpu.questions import Prompt

TIE = {"bfloat16": 0.5, "float32": 0.05}
"""Logits."""


@cache
def lab() -> Engine:
    return Engine.load(WEIGHTS / "target", None, Speculation())


def logits_after(tokens: Sequence[int]) -> np.ndarray:
    """The target's logits [vocabulary] for what follows `tokens`."""
    return _logits_after(tuple(tokens))


@cache
def _logits_after(tokens: tuple[int, ...]) -> np.ndarray:
    target = lab().target
    logits, _ = target.prefill(target.initial_state(), np.array(tokens, np.intp))
    return np.asarray(logits).reshape(-1)


@dataclass(frozen=True)
class Divergence:
    prompt: int
    position: int
    below: tuple[float, float]
    """How far the logits of the two choices are below the best."""

    @property
    def gap(self) -> float:
        return max(self.below)


@dataclass
class Verdict:
    answers: int
    tokens: int
    divergences: list[Divergence]

    @property
    def worst(self) -> float:
        return max((found.gap for found in self.divergences), default=0.0)

    def __str__(self) -> str:
        same = self.answers - len(self.divergences)
        gaps = Counter(f"{found.gap:.3f}@{found.position}" for found in self.divergences)
        told = ", ".join(f"{gap} x{times}" if times > 1 else gap for gap, times in gaps.items())
        return f"{same} of {self.answers} equal ({self.tokens} tokens); gaps: {told or 'none'}"


def compared(prompts: Sequence[Prompt], ours: Outputs, reference: Outputs) -> Verdict:
    """`ours` against `reference`, answer by answer. A missing end counts as a difference."""
    divergences = []
    for index, (prompt, mine, other) in enumerate(zip(prompts, ours, reference, strict=True)):
        if mine == other:
            continue
        common = 0
        while common < min(len(mine), len(other)) and mine[common] == other[common]:
            common += 1
        logits = logits_after([*prompt, *mine[:common]])
        best = float(logits.max())
        choices = [
            best - float(logits[answer[common]]) if common < len(answer) else float("inf")
            for answer in (mine, other)
        ]
        divergences.append(Divergence(index, common, (choices[0], choices[1])))
    return Verdict(len(prompts), sum(map(len, ours)), divergences)
