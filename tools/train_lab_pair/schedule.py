"""What both trainings share: optimiser, learning-rate curve, gradients, one optimiser step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


def optimiser(model: nn.Module, rate: float) -> torch.optim.AdamW:
    """AdamW; weight decay on matrices only."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = trained[0].device.type == "cuda"
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=fused)


def rate_at(step: int, steps: int, *, warmup: int = 100, floor: float = 0.02) -> float:
    """Share of the peak rate: linear warm-up, then a cosine down to `floor`."""
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


@dataclass(slots=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    losses: Tensor


class Gradients:
    """Adds the gradients of `losses(*inputs).sum()` to the model's.

    A model this small is bound by the launching of kernels, not by the device: on CUDA each batch
    shape is recorded once as a graph and replayed. `losses` must not read a value on the host.
    """

    def __init__(self, model: nn.Module, losses: Callable[..., Tensor]) -> None:
        self._losses = losses
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self._recordings: dict[tuple[torch.Size, ...], _Recording] = {}
        self._pool = torch.cuda.graph_pool_handle() if self._on_cuda else None
        for p in self._trained:
            p.grad = torch.zeros_like(p)  # graphs add to these very tensors

    @property
    def _on_cuda(self) -> bool:
        return self._trained[0].device.type == "cuda"

    def zero(self) -> None:
        torch._foreach_zero_([p.grad for p in self._trained if p.grad is not None])

    def add(self, *inputs: Tensor) -> Tensor:
        """The losses, without their history; valid until the next call."""
        if not self._on_cuda:
            return self._run(*inputs)
        shapes = tuple(x.shape for x in inputs)
        if shapes not in self._recordings:
            self._recordings[shapes] = self._record(inputs)
        recording = self._recordings[shapes]
        for mine, given in zip(recording.inputs, inputs, strict=True):
            mine.copy_(given)
        recording.graph.replay()
        return recording.losses

    def _run(self, *inputs: Tensor) -> Tensor:
        device = inputs[0].device.type
        # a graph must not keep casts of weights from an earlier step
        with torch.autocast(device, torch.bfloat16, enabled=self._on_cuda, cache_enabled=False):
            losses = self._losses(*inputs)
        losses.sum().backward()
        return losses.detach()

    def _record(self, inputs: tuple[Tensor, ...]) -> _Recording:
        own = tuple(x.clone() for x in inputs)
        kept = [p.grad.clone() for p in self._trained if p.grad is not None]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):  # lets libraries allocate before the recording
                self._run(*own)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            losses = self._run(*own)
        for p, grad in zip(self._trained, kept, strict=True):
            p.grad = p.grad.copy_(grad) if p.grad is not None else grad
        return _Recording(graph, own, losses)


def advance(model: nn.Module, adam: torch.optim.AdamW, rate: float) -> None:
    """Clip the gradients at norm 1 and take one step at `rate`."""
    for group in adam.param_groups:
        group["lr"] = rate
    nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
    adam.step()
