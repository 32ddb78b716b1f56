"""Train the target: next-token cross-entropy on library text and on exchanges."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .batches import bucketed, shuffled, text_windows
from .data import Rows, Tokens
from .schedule import Gradients, advance, optimiser, rate_at
from .shapes import TargetShape
from .target import Target

# The questions are worth learning too, but they are not what the model is asked to say.
UNSPOKEN_WEIGHT = 0.2
EXCHANGE_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class TargetRecipe:
    steps: int
    seed: int = 1
    peak_rate: float = 3e-3
    exchange_tokens: int = 24576
    text_rows: int = 12
    text_width: int = 512


def exchange_loss(target: Target, tokens: Tensor, spoken: Tensor, lengths: Tensor) -> Tensor:
    hidden, _ = target(tokens)
    losses = functional.cross_entropy(
        target.lm_head(hidden[:, :-1]).float().flatten(0, 1),
        tokens[:, 1:].flatten(),
        reduction="none",
    ).view(len(tokens), -1)
    real = torch.arange(1, tokens.shape[1], device=tokens.device) < lengths[:, None]
    weight = torch.where(spoken[:, 1:], 1.0, UNSPOKEN_WEIGHT) * real
    return (losses * weight).sum() / weight.sum()


def text_loss(target: Target, tokens: Tensor) -> Tensor:
    hidden, _ = target(tokens)
    logits = target.lm_head(hidden[:, :-1]).float()
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


@torch.no_grad()
def held_out_losses(target: Target, rows: Rows, text: Tokens, names: list[str]) -> dict[str, float]:
    """Mean nats a token: of each family's held-out answers, of all answers, of library text."""
    device = next(target.parameters()).device
    sums = torch.zeros(len(names), 2, dtype=torch.float64)
    for bucket in bucketed(rows, device):
        for batch in bucket.split(128):
            hidden, _ = target(batch.tokens)
            logits = target.lm_head(hidden[:, :-1]).float()
            losses = functional.cross_entropy(
                logits.flatten(0, 1), batch.tokens[:, 1:].flatten(), reduction="none"
            )
            said = batch.spoken[:, 1:]
            by_row = (losses.view(said.shape) * said).sum(1).tolist()
            for row, loss, count in zip(
                batch.origins.tolist(), by_row, said.sum(1).tolist(), strict=True
            ):
                sums[int(rows.families[row])] += torch.tensor([loss, count])
    result = {name: float(s / max(1.0, n)) for name, (s, n) in zip(names, sums, strict=True)}
    result["answers"] = float(sums[:, 0].sum() / sums[:, 1].sum())
    windows = torch.from_numpy(text[: len(text) // 512 * 512].astype("int64")).view(-1, 512)
    result["library text"] = float(
        sum(text_loss(target, part.to(device)).item() * len(part) for part in windows.split(32))
        / len(windows)
    )
    return result


def train_target(
    train: tuple[Rows, Tokens], recipe: TargetRecipe, device: torch.device
) -> tuple[Target, dict[str, Any]]:
    """A trained target and the log of its training."""
    torch.manual_seed(recipe.seed)
    target = Target(TargetShape()).to(device)
    adam = optimiser(target, recipe.peak_rate)
    rows, text = train
    exchanges = shuffled(bucketed(rows, device), recipe.exchange_tokens, recipe.seed)
    windows = text_windows(text, recipe.text_width, recipe.text_rows, recipe.seed, device)

    def losses(tokens: Tensor, spoken: Tensor, lengths: Tensor, window: Tensor) -> Tensor:
        talk = EXCHANGE_SHARE * exchange_loss(target, tokens, spoken, lengths)
        return torch.stack([talk, (1 - EXCHANGE_SHARE) * text_loss(target, window)])

    gradients = Gradients(target, losses)
    curve: list[dict[str, float]] = []
    seen = 0
    start = time.perf_counter()
    for step in range(recipe.steps):
        batch, window = next(exchanges), next(windows)
        gradients.zero()
        parts = gradients.add(batch.tokens, batch.spoken, batch.lengths, window)
        advance(target, adam, recipe.peak_rate * rate_at(step, recipe.steps))
        seen += batch.tokens.numel() + window.numel()
        if step % 100 == 0 or step == recipe.steps - 1:
            talk = parts[0].item() / EXCHANGE_SHARE
            library = parts[1].item() / (1 - EXCHANGE_SHARE)
            seconds = time.perf_counter() - start
            curve.append(
                {"step": step, "seconds": round(seconds, 1), "answers": talk,
                 "library": library, "tokens": seen}
            )  # fmt: skip
            print(
                f"target step {step} {seconds:.0f} s answers {talk:.3f} "
                f"library {library:.3f} {seen / max(seconds, 1e-9) / 1e3:.0f} ktok/s",
                flush=True,
            )
    log = {"recipe": asdict(recipe), "curve": curve, "tokens": seen,
           "seconds": round(time.perf_counter() - start, 1)}  # fmt: skip
    return target, log
