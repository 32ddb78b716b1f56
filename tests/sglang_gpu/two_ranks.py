"""Two ranks rank the halves of a vocabulary and build trees; the same logits whole give the same.

    python -m tests.sglang_gpu.two_ranks gloo|nccl OUT.json

SGLang's own group is not needed for that: what DDTREE asks of one is a size and a gather. Under
gloo both ranks hold their tensors on one GPU and exchange them through the host.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from sglang.srt.speculative.ddtree.candidates import rank_logits
from sglang.srt.speculative.ddtree.tree import DraftTree, TreeShape, build_tree

BATCH, CAP, VOCABULARY = 8, 8, 20_011
HALF = 10_048
BUDGETS = (8, 16, 64)
ROUNDS = 20


class Group:
    """The two ranks, counting what they exchange."""

    world_size = 2

    def __init__(self, backend: str):
        self._by_host = backend == "gloo"
        self.received = 0

    def all_gather_into_tensor(self, out: torch.Tensor, mine: torch.Tensor) -> None:
        self.received += mine.numel() * mine.element_size()
        if self._by_host:
            gathered = torch.empty(out.shape, dtype=out.dtype)
            dist.all_gather_into_tensor(gathered, mine.cpu())
            out.copy_(gathered)
        else:
            dist.all_gather_into_tensor(out, mine)


def tree_of(log_probs: torch.Tensor, tokens: torch.Tensor, budget: int) -> DraftTree:
    device = log_probs.device
    shape = TreeShape(budget, depth=15, cap=CAP, seed=min(15, budget // 4))
    return build_tree(
        log_probs,
        tokens,
        shape,
        roots=torch.arange(BATCH, device=device),
        prefix_lens=torch.arange(5, 5 + BATCH, device=device),
        pool_indices=torch.arange(BATCH, device=device),
        req_to_token=torch.arange(BATCH * 256, dtype=torch.int32, device=device).view(BATCH, 256),
    )


def same(one: DraftTree, other: DraftTree) -> bool:
    others = asdict(other)
    return all(torch.equal(value, others[name]) for name, value in asdict(one).items())


def work(rank: int, backend: str, meeting: str, out: str) -> None:
    device = torch.device("cuda", rank if backend == "nccl" else 0)
    torch.cuda.set_device(device)
    dist.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=2)
    group = Group(backend)
    trees = differ = rows = 0
    for seed in range(ROUNDS):
        generator = torch.Generator().manual_seed(seed)
        logits = 3 * torch.randn((BATCH * 15, VOCABULARY), generator=generator)
        if seed % 2:
            # Whole numbers: ties within a rank and across both.
            logits = logits.round()
        logits = logits.to(device, torch.bfloat16 if seed % 4 > 1 else torch.float32)
        mine = logits[:, :HALF] if rank == 0 else logits[:, HALF:]
        split = rank_logits(mine, CAP, first_token=rank * HALF, group=group)
        whole = rank_logits(logits, CAP)
        rows += len(logits)
        for budget in BUDGETS:
            trees += 1
            differ += not same(tree_of(*split, budget), tree_of(*whole, budget))
    counts = torch.tensor([differ])
    if backend == "nccl":
        counts = counts.to(device)
    dist.all_reduce(counts)
    if rank == 0:
        found = {
            "backend": backend,
            "trees": trees,
            "trees_differ": int(counts),
            "cap": CAP,
            "vocabulary": VOCABULARY,
            "bytes_per_row": group.received / rows,
            "bytes_of_logits_per_row": 2 * VOCABULARY // 2,
        }
        Path(out).write_text(json.dumps(found))
    dist.destroy_process_group()


def main() -> None:
    backend, out = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        torch.multiprocessing.spawn(work, args=(backend, meeting, out), nprocs=2)


if __name__ == "__main__":
    main()
