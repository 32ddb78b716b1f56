"""Rows of similar length, padded and kept on the device, drawn in a seeded order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .data import Rows, Tokens
from .shapes import END_OF_TEXT

WIDTHS = (32, 48, 64, 80, 96, 128, 192, 320)


@dataclass(frozen=True, slots=True)
class Bucket:
    """tokens [rows, width] int64 padded at the right; spoken [rows, width]; lengths [rows];
    origins [rows]: the row numbers in the data."""

    tokens: Tensor
    spoken: Tensor
    lengths: Tensor
    origins: Tensor

    def select(self, rows: Tensor) -> Bucket:
        rows = rows.to(self.tokens.device, non_blocking=True)
        return Bucket(self.tokens[rows], self.spoken[rows], self.lengths[rows], self.origins[rows])

    def split(self, size: int) -> Iterator[Bucket]:
        for part in torch.arange(len(self.tokens)).split(size):
            yield self.select(part)


def bucketed(rows: Rows, device: torch.device) -> list[Bucket]:
    lengths = np.diff(rows.offsets)
    buckets = []
    low = 0
    for width in WIDTHS:
        chosen = np.flatnonzero((lengths > low) & (lengths <= width))
        low = width
        if not len(chosen):
            continue
        tokens = np.full((len(chosen), width), END_OF_TEXT, dtype=np.int64)
        spoken = np.zeros((len(chosen), width), dtype=np.bool_)
        for i, row in enumerate(chosen):
            ids, says = rows.row(int(row))
            tokens[i, : len(ids)] = ids
            spoken[i, : len(ids)] = says
        buckets.append(
            Bucket(
                torch.from_numpy(tokens).to(device),
                torch.from_numpy(spoken).to(device),
                torch.from_numpy(lengths[chosen]).to(device),
                torch.from_numpy(chosen).to(device),
            )
        )
    return buckets


def shuffled(buckets: list[Bucket], tokens_per_batch: int, seed: int) -> Iterator[Bucket]:
    """Endless batches of about `tokens_per_batch`; a pass visits every row at most once.

    All batches of a bucket have one shape: what is left over waits for another pass's order.
    """
    generator = torch.Generator().manual_seed(seed)
    while True:
        plan = []
        for b, bucket in enumerate(buckets):
            size = min(len(bucket.tokens), max(1, tokens_per_batch // bucket.tokens.shape[1]))
            order = torch.randperm(len(bucket.tokens), generator=generator)
            plan += [(b, part) for part in order.split(size) if len(part) == size]
        for p in torch.randperm(len(plan), generator=generator).tolist():
            b, part = plan[p]
            yield buckets[b].select(part)


def text_windows(
    text: Tokens, width: int, count: int, seed: int, device: torch.device
) -> Iterator[Tensor]:
    """Endless [count, width] windows at random places of the library text."""
    generator = torch.Generator().manual_seed(seed)
    flat = torch.from_numpy(text.astype(np.int64)).to(device)
    reach = torch.arange(width, device=device)
    while True:
        starts = torch.randint(len(flat) - width, (count,), generator=generator)
        yield flat[starts.to(device)[:, None] + reach]
