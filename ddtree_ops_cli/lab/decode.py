"""The engine: prefill, then steps of draft, verify, walk and commit.

Plain decoding, linear DFlash (arXiv 2602.06036; sglang/srt/speculative/dflash_worker_v2.py) and
DDTree (arXiv 2604.12989) are one loop and differ only in the tree that a step verifies: its root
alone, the root and the drafter's argmax chain, or the root and the best-first tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ..errors import DdtreeError, UsageError
from . import drafter as drafters
from . import target as targets
from .arrays import Indices
from .attention import KeyValues
from .checkpoint import GENERATION_CONFIG, Checkpoint, read_checkpoint, read_json
from .drafter import Drafter
from .sampling import Sampling
from .target import Target
from .tree import (
    DraftTree,
    accepted_at_least,
    best_first_tree,
    chain_tree,
    root_only,
    top_candidates,
    walk,
)

__all__ = ["MAX_BUDGET", "Engine", "Sampling", "Speculation", "Step", "default_chain_seed"]

MAX_BUDGET = 256
"""Nodes besides the root. The paper finds nothing to gain beyond a few hundred."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """How tokens are drafted. All but `algorithm` concerns DDTREE only."""

    algorithm: Literal["none", "DFLASH", "DDTREE"] = "none"
    budget: int = 16
    """Tree nodes besides the root, 1 to MAX_BUDGET."""
    topk_cap: int = 8
    """Candidates of each depth."""
    chain_seed: int | None = None
    """Depth to which the spine is always kept; None is `default_chain_seed`."""
    mode: Literal["tree", "shadow-linear"] = "tree"
    """shadow-linear builds and scores the tree, and verifies the chain as DFLASH does."""

    def __post_init__(self) -> None:
        if self.algorithm not in ("none", "DFLASH", "DDTREE"):
            raise UsageError(
                f"unknown speculative algorithm {self.algorithm}", mend="use DFLASH or DDTREE"
            )
        if self.mode not in ("tree", "shadow-linear"):
            raise UsageError(f"unknown mode {self.mode}", mend="use tree or shadow-linear")
        if not 1 <= self.budget <= MAX_BUDGET:
            raise UsageError(f"budget must be 1 to {MAX_BUDGET}, got {self.budget}")
        if self.topk_cap < 1:
            raise UsageError(f"topk_cap must be at least 1, got {self.topk_cap}")
        if self.chain_seed is not None and self.chain_seed < 0:
            raise UsageError(f"chain_seed must be at least 0, got {self.chain_seed}")

    @property
    def verifies_tree(self) -> bool:
        return self.algorithm == "DDTREE" and self.mode == "tree"

    def seed_depth(self, block_size: int) -> int:
        """The chain seed in force: at most block_size - 1 and at most the budget."""
        wanted = self.chain_seed
        if wanted is None:
            wanted = default_chain_seed(self.budget, block_size)
        return min(wanted, block_size - 1, self.budget)


def default_chain_seed(budget: int, block_size: int) -> int:
    """A quarter of the budget goes to the spine, as far as the block reaches.

    Measured on the lab pair (its model card): within 0.1 % of the best seed at budgets 8 to 64,
    where half of the budget costs 0.6 % of the accept length at budget 16.
    """
    return min(block_size - 1, budget // 4)


@dataclass(frozen=True, slots=True)
class Step:
    """What one target pass brought. Step 0 is the prefill: one token, nothing proposed."""

    tokens: tuple[int, ...]
    """The accepted draft tokens and then the bonus token; cut short where generation ends."""
    proposed: int
    """Tree nodes verified besides the root."""
    accepted: int
    """Draft tokens that the target agreed with, those after a cut included."""
    off_spine: int
    """Accepted nodes that are not on the drafter's argmax chain."""
    tree_at_least: int | None = None
    """Shadow mode: the drafts that the tree would have accepted at least (tree.py); else None."""


class Engine:
    """One model pair and one way of speculating. Requests are independent of each other."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        speculation: Speculation,
        *,
        context_length: int,
        eos_token_ids: frozenset[int],
    ) -> None:
        self.target = target
        self.drafter = drafter
        self.speculation = speculation
        self.context_length = context_length
        self.eos_token_ids = eos_token_ids
        self.vocab_size = target.vocab_size
        self.block_size = drafter.block_size if drafter else 1

    @staticmethod
    def load(
        target: Path,
        drafter: Path | None,
        speculation: Speculation,
        context_length: int | None = None,
    ) -> Engine:
        """Reads both checkpoints; the drafter only if `speculation` uses it.

        Raises DdtreeError for a checkpoint that cannot be read or a drafter made for another
        target, UsageError for a missing drafter or a context beyond the model's.
        """
        checkpoint = read_checkpoint(target, architecture=targets.ARCHITECTURE)
        model = Target(checkpoint)
        draft_model = None
        if speculation.algorithm != "none":
            if drafter is None:
                raise UsageError(
                    f"{speculation.algorithm} needs a drafter", mend="give its directory"
                )
            draft_checkpoint = read_checkpoint(drafter, architecture=drafters.ARCHITECTURE)
            draft_model = Drafter(draft_checkpoint, model)
            model.feature_layers = draft_model.feature_layers
        if context_length is None:
            context_length = model.max_positions
        if not 1 <= context_length <= model.max_positions:
            raise UsageError(
                f"context length must be 1 to {model.max_positions}, got {context_length}"
            )
        return Engine(
            model,
            draft_model,
            speculation,
            context_length=context_length,
            eos_token_ids=_eos_token_ids(checkpoint),
        )

    def generate(self, prompt: Sequence[int], sampling: Sampling) -> Iterator[Step]:
        """Decodes token ids behind `prompt`, one Step for each target pass.

        Ends after max_new_tokens, after an end-of-sequence or stop token (which is emitted) or when
        prompt and output fill the context. UsageError for a prompt that is empty, too long or not
        of this vocabulary, raised here and not at the first step.
        """
        if not prompt:
            raise UsageError("the prompt is empty")
        if len(prompt) >= self.context_length:
            raise UsageError(
                f"the prompt has {len(prompt)} tokens, the context holds {self.context_length}",
                mend="shorten it, there must be room for one more token",
            )
        if min(prompt) < 0 or max(prompt) >= self.vocab_size:
            raise UsageError(f"the prompt has token ids outside 0 to {self.vocab_size - 1}")
        return self._steps(np.array(prompt, np.intp), sampling)

    def _steps(self, prompt: Indices, sampling: Sampling) -> Iterator[Step]:
        room = min(sampling.max_new_tokens, self.context_length - len(prompt))
        stops = sampling.stop_token_ids
        if not sampling.ignore_eos:
            stops = stops | self.eos_token_ids
        if room == 0:
            return
        choose = sampling.chooser()
        state = self.target.initial_state()
        context = self.drafter.initial_context() if self.drafter else []

        logits, features = self.target.prefill(state, prompt)
        root = choose(logits)
        yield Step((root,), 0, 0, 0)
        room -= 1
        if root in stops:
            return
        while room > 0:
            # The root is emitted but not committed: no target pass has seen it yet.
            if self.drafter:
                self.drafter.extend(context, features)
            tree, shadow = self._draft(context, root, self.context_length - state.length - 1)
            done = self.target.forward(state, tree.tokens, tree.ancestry)
            path, bonus = walk(tree, self.target.logits(done.hidden), choose)
            self.target.commit(state, done, path)
            features = done.features[path]

            tokens = _cut([*tree.tokens[path[1:]].tolist(), bonus], room, stops)
            off_spine = sum(node not in tree.spine for node in path.tolist())
            accepted = len(path) - 1
            won = accepted_at_least(shadow, accepted, bonus) if shadow else None
            yield Step(tuple(tokens), tree.proposed, accepted, off_spine, won)
            room -= len(tokens)
            root = tokens[-1]
            if root in stops:
                return

    def _draft(
        self, context: list[KeyValues], root: int, depth_limit: int
    ) -> tuple[DraftTree, DraftTree | None]:
        """The tree to verify behind `root`, no deeper than the context has positions for; in shadow
        mode also the one that is not verified."""
        speculation = self.speculation
        shadows = speculation.algorithm == "DDTREE" and not speculation.verifies_tree
        if self.drafter is None or depth_limit < 1:
            return root_only(root), root_only(root) if shadows else None
        logits = self.drafter.draft(context, root)[:depth_limit]
        if speculation.algorithm == "DFLASH":
            return chain_tree(root, logits.argmax(axis=-1)), None
        candidates = top_candidates(logits, speculation.topk_cap)
        seed = speculation.seed_depth(self.block_size)
        tree = best_first_tree(root, candidates, speculation.budget, seed)
        return (chain_tree(root, candidates.tokens[:, 0]), tree) if shadows else (tree, None)


def _cut(tokens: list[int], room: int, stops: frozenset[int]) -> list[int]:
    """The tokens up to the first stop token, which stays, and at most `room` of them."""
    for index, token in enumerate(tokens[:room]):
        if token in stops:
            return tokens[: index + 1]
    return tokens[:room]


def _eos_token_ids(checkpoint: Checkpoint) -> frozenset[int]:
    """End-of-sequence ids of config.json and, where there is one, generation_config.json."""
    sources = [checkpoint.config]
    generation = checkpoint.directory / GENERATION_CONFIG
    if generation.exists():
        sources.append(read_json(generation))
    found: set[int] = set()
    for source in sources:
        ids = source.get("eos_token_id")
        for token in ids if isinstance(ids, list) else [ids]:
            if token is not None and not isinstance(token, int):
                raise DdtreeError(
                    f"eos_token_id is {ids!r}, expected token ids",
                    where=str(checkpoint.directory),
                )
            if token is not None:
                found.add(token)
    return frozenset(found)
