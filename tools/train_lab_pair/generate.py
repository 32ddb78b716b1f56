"""The target's own answers: a whole batch of prompts, one token a step, greedy or sampled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from .shapes import END_OF_TEXT, IM_END
from .target import Target


@torch.no_grad()
def answer(
    target: Target,
    prompts: Sequence[NDArray[np.uint16]],
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
    batch: int = 4096,
) -> list[list[int]]:
    """The answers, in the order of the prompts; one that did not end lacks <|im_end|>."""
    device = next(target.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    answers: list[list[int]] = [[] for _ in prompts]
    by_length = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for start in range(0, len(by_length), batch):
        chosen = by_length[start : start + batch]
        lengths = torch.tensor([len(prompts[i]) for i in chosen], device=device)
        longest = int(lengths.max())
        end = longest + max_new_tokens
        tokens = torch.full((len(chosen), end + 1), END_OF_TEXT, device=device)
        padded = np.full((len(chosen), longest), END_OF_TEXT, dtype=np.int64)
        for row, i in enumerate(chosen):
            padded[row, : len(prompts[i])] = prompts[i]
        tokens[:, :longest] = torch.from_numpy(padded).to(device)
        caches = target.new_cache(len(chosen), end, device)
        done = torch.zeros(len(chosen), dtype=torch.bool, device=device)
        for t in range(end):
            logits = target.step(tokens[:, t], torch.full_like(lengths, t), caches).float()
            if temperature > 0:
                chance = (logits / temperature).softmax(-1)
                said = torch.multinomial(chance, 1, generator=generator)[:, 0]
            else:
                said = logits.argmax(-1)
            inside = t + 1 < lengths
            said = torch.where(done, END_OF_TEXT, said)
            tokens[:, t + 1] = torch.where(inside, tokens[:, t + 1], said)
            done |= ~inside & ((said == IM_END) | (t + 1 - lengths >= max_new_tokens - 1))
            # reading the flags stops the device: look only now and then
            if t % 16 == 15 and bool(done.all()):
                break
        for row, i in enumerate(chosen):
            said_row = tokens[row, len(prompts[i]) : len(prompts[i]) + max_new_tokens].tolist()
            if IM_END in said_row:
                said_row = said_row[: said_row.index(IM_END) + 1]
            answers[i] = said_row
    return answers
