"""Who descends from whom among the nodes of one target pass.

A prompt chunk, a plain decode step, a DFlash block and a DDTree all enter the target in the same
shape: nodes with parents, parents before children, node 0 the root. A chain is the tree in which
each node has one child. What a layer may see of a node's past follows from this alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats, Indices


@dataclass(frozen=True, slots=True)
class Ancestry:
    """The parents of N nodes and what follows from them, computed once a pass."""

    parents: Indices
    """[N], -1 for the root."""
    depths: Indices
    """[N], 0 for the root."""
    on_path: NDArray[np.bool_]
    """[N, N]: `on_path[n, a]` where `a` is `n` itself or an ancestor of it."""
    bias: Floats
    """[N, N]: 0 on the path and -inf off it, to be added to attention scores."""

    @staticmethod
    def of(parents: Indices) -> Ancestry:
        """The ancestry of `parents` [N]; every parent index must be below its child's."""
        count = len(parents)
        depths = np.zeros(count, np.intp)
        on_path = np.eye(count, dtype=np.bool_)
        for node, parent in enumerate(parents.tolist()):
            if parent >= 0:
                depths[node] = depths[parent] + 1
                on_path[node, :node] = on_path[parent, :node]
        bias = np.where(on_path, np.float32(0), np.float32(-np.inf))
        return Ancestry(parents, depths, on_path, bias)

    @staticmethod
    @lru_cache(maxsize=128)
    def chain(count: int) -> Ancestry:
        """`count` nodes, each the parent of the next."""
        return Ancestry.of(np.arange(-1, count - 1, dtype=np.intp))

    def path_to(self, node: int) -> Indices:
        """The nodes from the root down to `node`, both included."""
        return np.flatnonzero(self.on_path[node])

    def window_rows(self, width: int) -> Indices:
        """[N, width]: rows of each node's last `width` columns, its own last.

        They index the committed window of `width` - 1 columns followed by the N new columns, so
        that a node near the root continues into what was committed before it.
        """
        committed = width - 1
        link = np.concatenate(
            [np.arange(-1, committed - 1, dtype=np.intp), self.parents + committed]
        )
        rows = np.empty((len(self.parents), width), np.intp)
        rows[:, -1] = np.arange(committed, committed + len(self.parents))
        for column in range(width - 2, -1, -1):
            rows[:, column] = link[rows[:, column + 1]]
        return rows
