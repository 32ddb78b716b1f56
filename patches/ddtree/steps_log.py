"""One JSON line per verify step, for `--speculative-ddtree-log-steps FILE`.

The device is never waited for: counts are copied to the host asynchronously, and a step is written
when the scheduler processes its result, by which time they have arrived.
"""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path

import torch
from sglang.srt.managers.utils import _async_d2h

from .tree import DraftTree


class StepsLog:
    """Appends to `path`; steps are noted and written in the same order."""

    def __init__(self, path: str, mode: str):
        # Open as long as the server runs.
        self._file = Path(path).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._mode = mode
        self._noted: deque[tuple[str, torch.Tensor]] = deque()

    def note(self, name: str, counts: torch.Tensor) -> None:
        """`counts` [batch] of a step that has been launched."""
        self._noted.append((name, _async_d2h(counts)))

    def write(self, accepted: list[int]) -> None:
        """Drafts accepted per request, of the oldest step that is noted and not written."""
        if not self._noted:
            return
        name, counts = self._noted.popleft()
        step = {"mode": self._mode, "accepted": accepted, name: counts.tolist()}
        self._file.write(json.dumps(step) + "\n")


def accepted_at_least(
    tree: DraftTree, prefix_lens: torch.Tensor, accepted: torch.Tensor, bonus: torch.Tensor
) -> torch.Tensor:
    """How many drafts the tree would have accepted at least, [batch].

    The chain has shown the target's choices along the spine, `accepted` of them right, and then
    `bonus`. What the target wants beyond a node off the spine, the chain cannot know.
    """
    depth = tree.positions - prefix_lens[:, None]
    on_spine = tree.on_spine == 1
    kept = on_spine.sum(dim=1) - 1
    reached = torch.minimum(accepted, kept)
    leaf = (on_spine & (depth == reached[:, None])).to(torch.int32).argmax(dim=1)
    branches = (tree.parents == leaf[:, None]) & (tree.tokens == bonus[:, None])
    return reached + (branches.any(dim=1) & (accepted <= kept))
