"""Train the drafter on the target's own answers, the target frozen.

Random anchors in each answer; cross-entropy on the masked positions of each block, weighted
exp(-(k - 1) / 7) for position k (the decay that the paper gives for blocks of 16).
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .batches import Bucket, bucketed, shuffled
from .data import Rows
from .drafter import Drafter
from .schedule import Gradients, advance, optimiser, rate_at
from .shapes import DrafterShape
from .target import Target

DECAY = 7.0


@dataclass(frozen=True, slots=True)
class DrafterRecipe:
    steps: int
    seed: int = 1
    peak_rate: float = 2e-3
    tokens: int = 24576
    anchors: int = 16


def random_anchors(batch: Bucket, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(anchors, valid) [batch, count]: places of the last answer that have a successor."""
    width = batch.tokens.shape[1]
    place = torch.arange(width, device=batch.tokens.device)
    last_silent = torch.where(batch.spoken, -1, place)
    last_silent = torch.where(place < batch.lengths[:, None], last_silent, -1).amax(1, keepdim=True)
    allowed = (place > last_silent) & (place < batch.lengths[:, None] - 1)
    score = torch.rand(allowed.shape, device=allowed.device, generator=generator)
    best = (score + allowed).topk(min(count, width))
    return best.indices, allowed.gather(1, best.indices)


def block_losses(
    target: Target,
    drafter: Drafter,
    tokens: Tensor,
    lengths: Tensor,
    anchors: Tensor,
    valid: Tensor,
) -> tuple[Tensor, Tensor]:
    """(cross-entropy, counted) [batch, blocks, block - 1] of the masked positions."""
    with torch.no_grad():
        _, features = target(tokens, keep_layers=drafter.shape.target_layer_ids)
    roots = tokens.gather(1, anchors)
    hidden = drafter(features, roots, anchors, target.model.embed_tokens)
    ahead = anchors[..., None] + torch.arange(1, drafter.shape.block_size, device=anchors.device)
    counted = valid[..., None] & (ahead < lengths[:, None, None])
    index = ahead.clamp(max=tokens.shape[1] - 1)
    labels = tokens[:, None].expand(-1, anchors.shape[1], -1).gather(2, index)
    logits = target.lm_head(hidden).float()
    losses = functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")
    return losses.view(labels.shape), counted


def weighted(losses: Tensor, counted: Tensor) -> Tensor:
    depth = torch.arange(losses.shape[-1], device=losses.device)
    weight = (-depth / DECAY).exp() * counted
    return (losses * weight).sum() / weight.sum()


@torch.no_grad()
def held_out_loss(target: Target, drafter: Drafter, rows: Rows, *, seed: int = 0) -> float:
    """The training loss on held-out prompts answered by the target, at up to 32 anchors a row."""
    device = next(drafter.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    total = torch.zeros(2, dtype=torch.float64)
    for bucket in bucketed(rows, device):
        for batch in bucket.split(128):
            anchors, valid = random_anchors(batch, 32, generator)
            losses, counted = block_losses(
                target, drafter, batch.tokens, batch.lengths, anchors, valid
            )
            count = counted.sum().item()
            total += torch.tensor([weighted(losses, counted).item() * count, count])
    return float(total[0] / total[1])


def train_drafter(
    target: Target, answers: Rows, recipe: DrafterRecipe, device: torch.device
) -> tuple[Drafter, dict[str, Any]]:
    """A trained drafter and the log of its training."""
    torch.manual_seed(recipe.seed)
    target.requires_grad_(requires_grad=False)
    drafter = Drafter(DrafterShape()).to(device)
    adam = optimiser(drafter, recipe.peak_rate)
    batches = shuffled(bucketed(answers, device), recipe.tokens, recipe.seed)
    generator = torch.Generator(device).manual_seed(recipe.seed)

    def losses(tokens: Tensor, lengths: Tensor, anchors: Tensor, valid: Tensor) -> Tensor:
        return weighted(*block_losses(target, drafter, tokens, lengths, anchors, valid))

    gradients = Gradients(drafter, losses)
    curve: list[dict[str, float]] = []
    start = time.perf_counter()
    for step in range(recipe.steps):
        batch = next(batches)
        anchors, valid = random_anchors(batch, recipe.anchors, generator)
        gradients.zero()
        loss = gradients.add(batch.tokens, batch.lengths, anchors, valid)
        advance(drafter, adam, recipe.peak_rate * rate_at(step, recipe.steps))
        if step % 100 == 0 or step == recipe.steps - 1:
            seconds = time.perf_counter() - start
            curve.append({"step": step, "seconds": round(seconds, 1), "loss": loss.item()})
            print(f"drafter step {step} {seconds:.0f} s loss {loss.item():.3f}", flush=True)
    log = {"recipe": asdict(recipe), "curve": curve,
           "seconds": round(time.perf_counter() - start, 1)}  # fmt: skip
    return drafter, log
