"""What a step keeps: SGLang's own walk and the path kernel against the lab engine's `walk`."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sglang.srt.speculative import spec_utils
from sglang.srt.speculative.ddtree.accept import AcceptedPath, accepted_path
from sglang.srt.speculative.ddtree.arguments import default_chain_seed
from sglang.srt.speculative.ddtree.steps_log import accepted_at_least
from sglang.srt.speculative.ddtree.tree import DraftTree, TreeShape
from sglang.srt.speculative.eagle_utils import verify_tree_greedy_triton

from ddtree_ops_cli.lab.tree import walk
from tests.sglang_cpu.device import DEVICE
from tests.sglang_cpu.test_tree import PREFIXES, built, candidates, expected

VOCABULARY = 320
BATCH = 3


def logits_that_follow(tree: DraftTree, shape: TreeShape, seed: int) -> torch.Tensor:
    """[batch, nodes, vocabulary]: two nodes of three want one of their children, if any."""
    random = np.random.default_rng(seed)
    logits = random.standard_normal((BATCH, shape.nodes, VOCABULARY)).astype(np.float32)
    for request in range(BATCH):
        parents = tree.parents[request].tolist()
        for node in range(shape.nodes):
            children = [child for child, parent in enumerate(parents) if parent == node]
            if children and random.random() < 0.67:
                wanted = int(tree.tokens[request, random.choice(children)])
                logits[request, node, wanted] = 10
    return torch.from_numpy(logits).to(DEVICE)


def walked(tree: DraftTree, shape: TreeShape, logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """SGLang's greedy walk: the target's choices, lengths with the bonus, rows of the path."""
    nodes = shape.nodes
    predict = torch.zeros((BATCH * nodes,), dtype=torch.int32)
    accept_index = torch.full((BATCH, shape.path), -1, dtype=torch.int32)
    accepted = torch.empty((BATCH,), dtype=torch.int32)
    verify_tree_greedy_triton(
        predicts=predict,
        accept_index=accept_index,
        accept_token_num=accepted,
        candidates=tree.tokens,
        retrieve_index=torch.arange(BATCH * nodes).view(BATCH, nodes),
        retrieve_next_token=tree.next_token,
        retrieve_next_sibling=tree.next_sibling,
        target_predict=logits.argmax(dim=-1),
    )
    return predict, accepted + 1, accept_index


def path_of(
    tree: DraftTree,
    shape: TreeShape,
    predict: torch.Tensor,
    lens: torch.Tensor,
    index: torch.Tensor,
) -> AcceptedPath:
    return accepted_path(
        tree, shape, accept_index=index, accept_lens=lens, predict=predict, prefix_lens=PREFIXES
    )


@pytest.mark.parametrize("budget", [1, 8, 15, 16, 17, 64])
@pytest.mark.parametrize("seed", range(2))
def test_the_accepted_path_is_the_lab_engines(budget: int, seed: int) -> None:
    shape = TreeShape(budget, depth=15, cap=4, seed=default_chain_seed(budget, 16))
    log_probs, tokens = candidates(shape, seed=seed)
    tree = built(shape, log_probs, tokens)
    logits = logits_that_follow(tree, shape, seed)
    predict, lens, index = walked(tree, shape, logits)
    path = path_of(tree, shape, predict, lens, index)
    for request in range(BATCH):
        lab = expected(shape, log_probs, tokens, request)
        nodes, bonus = walk(lab, logits[request].cpu().numpy(), lambda row: int(row.argmax()))
        kept, prefix = len(nodes), int(PREFIXES[request])
        assert int(lens[request]) == kept
        emitted = [*lab.tokens[nodes[1:]].tolist(), bonus]
        assert path.tokens[request, :kept].tolist() == emitted
        assert int(path.bonus[request]) == bonus
        assert int(path.new_seq_lens[request]) == prefix + kept
        rows = [request * shape.nodes + int(node) for node in nodes]
        assert path.rows[request, :kept].tolist() == rows
        assert path.positions[request].tolist() == list(range(prefix, prefix + shape.path))
        assert path.from_slots[request, :kept].tolist() == tree.slots[request][nodes].tolist()
        assert path.to_slots[request].tolist() == tree.slots[request, : shape.path].tolist()
        assert int(path.off_spine[request]) == sum(int(n) not in lab.spine for n in nodes)


def test_moving_the_cache_leaves_slots_past_the_path_alone() -> None:
    shape = TreeShape(16, depth=15, cap=4, seed=4)
    tree = built(shape, *candidates(shape, seed=1))
    predict, lens, index = walked(tree, shape, logits_that_follow(tree, shape, 1))
    path = path_of(tree, shape, predict, lens, index)
    past = torch.arange(shape.path)[None, :] >= lens[:, None]
    assert torch.equal(path.from_slots[past], path.to_slots[past])
    assert path.to_slots.unique().numel() == path.to_slots.numel()


def test_the_committed_state_is_the_leafs_and_the_tracked_one_is_on_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Request 0 crosses a multiple of 8 at its third token; request 1 ends exactly there.
    interval = 8
    monkeypatch.setattr(
        spec_utils,
        "get_exec",
        lambda: SimpleNamespace(mamba=SimpleNamespace(mamba_track_interval=interval)),
    )
    index = torch.tensor([[0, 3, 7, 11], [12, 13, 17, -1], [24, -1, -1, -1]], dtype=torch.int32)
    lens = torch.tensor([4, 3, 1], dtype=torch.int32)
    batch = SimpleNamespace(
        seq_lens=torch.tensor([5, 13, 2]), mamba_track_indices=torch.tensor([0, 1, 2])
    )
    leaf, tracked = spec_utils._verify_commit_step_indices(
        batch=batch, accept_index=index, accept_lens=lens, draft_token_num=12
    )
    assert leaf.tolist() == [11, 5, 0]
    assert tracked.tolist() == [7, 5, -1]


def test_a_shadow_counts_what_the_chain_can_tell_about_the_tree() -> None:
    #     0 - 1 - 2      spine 0, 1, 2; node 3 branches off node 1
    #          \\- 3
    tree = DraftTree(
        tokens=torch.tensor([[9, 10, 11, 12]] * 4),
        parents=torch.tensor([[-1, 0, 1, 1]] * 4, dtype=torch.int32),
        positions=torch.tensor([[5, 6, 7, 7]] * 4),
        next_token=torch.empty(0),
        next_sibling=torch.empty(0),
        on_spine=torch.tensor([[1, 1, 1, 0]] * 4, dtype=torch.int32),
        slots=torch.empty(0),
    )
    accepted = torch.tensor([1, 1, 0, 4])
    bonus = torch.tensor([12, 99, 12, 12])
    prefix_lens = torch.full((4,), 5)
    # Branch taken; no such branch; a branch of another node; deeper than the tree's spine.
    assert accepted_at_least(tree, prefix_lens, accepted, bonus).tolist() == [2, 1, 0, 2]
