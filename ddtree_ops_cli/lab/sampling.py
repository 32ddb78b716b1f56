"""How the next token is chosen from the target's logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .arrays import Floats

GREEDY_BELOW = 1e-6
"""A temperature below this is greedy, as in sglang/srt/sampling/sampling_params.py."""

Choose = Callable[[Floats], int]


@dataclass(frozen=True, slots=True)
class Sampling:
    """What one request asks for; names and ranges are those of SGLang's sampling_params."""

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.max_new_tokens < 0:
            raise UsageError(f"max_new_tokens must be at least 0, got {self.max_new_tokens}")
        if not math.isfinite(self.temperature) or self.temperature < 0:
            raise UsageError(
                f"temperature must be a finite number of at least 0, got {self.temperature}"
            )
        if not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if self.top_k != -1 and self.top_k < 1:
            raise UsageError(f"top_k must be -1 (off) or at least 1, got {self.top_k}")

    def chooser(self) -> Choose:
        """A function from the logits of one position [vocabulary] to its token.

        Greedy takes the lowest of equal token ids. Otherwise every call draws one uniform number,
        so that a seed gives the same tokens however many nodes a pass verified.
        """
        if self.temperature < GREEDY_BELOW or self.top_k == 1:
            return lambda logits: int(logits.argmax())
        random = np.random.default_rng(self.seed)

        def draw(logits: Floats) -> int:
            summed = np.cumsum(distribution(logits, self))
            # Scaled to the sum, which rounding may have left below 1 and so below the draw.
            return int(np.searchsorted(summed, random.random() * summed[-1], side="right"))

        return draw


def distribution(logits: Floats, sampling: Sampling) -> NDArray[np.float64]:
    """The target's probabilities [vocabulary] after temperature, then top-k, then top-p.

    The order is that of SGLang's `build_dflash_verify_target_probs`: top-p counts within the
    renormalised top-k. Of equal logits the lower token id ranks first.
    """
    scaled = logits.astype(np.float64) / sampling.temperature
    weights = np.exp(scaled - scaled.max())
    if sampling.top_k != -1 or sampling.top_p < 1:
        ranked = np.argsort(-weights, kind="stable")
        if sampling.top_k != -1:
            weights[ranked[sampling.top_k :]] = 0
        before = np.cumsum(weights[ranked]) - weights[ranked]
        weights[ranked[before >= sampling.top_p * weights.sum()]] = 0
    probabilities: NDArray[np.float64] = weights / weights.sum()
    return probabilities
