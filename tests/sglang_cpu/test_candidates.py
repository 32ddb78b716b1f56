"""The candidate kernels against the lab engine's `top_candidates`."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sglang.srt.speculative.ddtree.candidates import (
    PART_SIZE,
    VocabularyShard,
    rank_candidates,
    rank_logits,
)
from sglang.srt.speculative.ddtree.sampler import CandidateSampler, vocabulary_shard

from ddtree_ops_cli.lab.tree import top_candidates
from tests.sglang_cpu.device import DEVICE


def drawn(rows: int, vocabulary: int, *, ties: bool = False, seed: int = 0) -> np.ndarray:
    logits = 3 * np.random.default_rng(seed).standard_normal((rows, vocabulary))
    return (np.round(logits) if ties else logits).astype(np.float32)


def assert_ranked_like_the_lab(logits: np.ndarray, cap: int) -> None:
    log_probs, tokens = rank_logits(torch.from_numpy(logits).to(DEVICE), cap)
    expected = top_candidates(logits, cap)
    np.testing.assert_array_equal(tokens.cpu().numpy(), expected.tokens)
    np.testing.assert_allclose(log_probs.cpu().numpy(), expected.log_probs, atol=2e-5)


@pytest.mark.parametrize("cap", [1, 2, 8, 18])
def test_best_tokens_and_their_log_probabilities(cap: int) -> None:
    assert_ranked_like_the_lab(drawn(6, 320), cap)


@pytest.mark.parametrize("vocabulary", [PART_SIZE - 1, PART_SIZE, PART_SIZE + 1, 3 * PART_SIZE + 7])
def test_the_best_tokens_are_found_in_whatever_part_they_are(vocabulary: int) -> None:
    assert_ranked_like_the_lab(drawn(4, vocabulary), 8)


@pytest.mark.parametrize("vocabulary", [320, 2 * PART_SIZE + 3])
def test_equal_logits_rank_by_token_id(vocabulary: int) -> None:
    logits = drawn(4, vocabulary, ties=True)
    assert_ranked_like_the_lab(logits, 8)
    log_probs, tokens = rank_logits(torch.zeros((2, vocabulary)), 4)
    assert tokens.tolist() == [[0, 1, 2, 3]] * 2
    assert (log_probs == log_probs[0, 0]).all()


def test_bf16_logits_rank_as_their_float32_values() -> None:
    logits = torch.from_numpy(drawn(3, 500)).to(DEVICE).bfloat16()
    log_probs, tokens = rank_logits(logits, 8)
    expected = top_candidates(logits.float().cpu().numpy(), 8)
    np.testing.assert_array_equal(tokens.cpu().numpy(), expected.tokens)
    np.testing.assert_allclose(log_probs.cpu().numpy(), expected.log_probs, atol=2e-5)


def test_impossible_tokens_never_become_a_bad_index() -> None:
    logits = torch.full((3, 50), float("-inf"))
    logits[1, 7] = 0.0
    logits[2, 0] = float("nan")
    log_probs, tokens = rank_logits(logits, 4)
    assert torch.isfinite(log_probs).all()
    assert tokens.min() >= 0
    assert tokens.max() < 50
    assert tokens[1, 0] == 7


def test_the_padding_of_the_head_is_left_out() -> None:
    generator = torch.Generator(DEVICE).manual_seed(1)
    weight = torch.randn((64, 16), generator=generator)
    hidden = torch.randn((5, 16), generator=generator)
    weight[50:] = 100 * hidden[0]
    _, tokens = rank_candidates(hidden, VocabularyShard(weight, 50), 8)
    assert tokens.max() < 50


def test_the_tail_of_the_draft_graph_and_its_eager_twin_agree() -> None:
    generator = torch.Generator(DEVICE).manual_seed(2)
    head = SimpleNamespace(weight=torch.randn((320, 16), generator=generator))
    shard = vocabulary_shard(head, SimpleNamespace(world_size=1))
    sampler = CandidateSampler(shard, block_size=4, cap=8, max_batch=3)
    hidden = torch.randn((2 * 4, 16), generator=generator)
    sampler(hidden)
    log_probs, tokens = sampler.rank(hidden)
    assert torch.equal(sampler.log_probs[:6], log_probs)
    assert torch.equal(sampler.tokens[:6], tokens)
    # Position 0 of each block is the root: nothing is drafted there.
    drafted = hidden.view(2, 4, 16)[:, 1:].reshape(6, 16)
    assert torch.equal(sampler.out[:6], (drafted @ head.weight.T).argmax(dim=-1))


@pytest.mark.parametrize(
    "head",
    [
        SimpleNamespace(),
        SimpleNamespace(weight=torch.zeros((8, 4), dtype=torch.int8)),
        SimpleNamespace(weight=torch.zeros((8, 4), dtype=torch.float8_e4m3fn)),
    ],
    ids=["absent", "int8", "fp8"],
)
def test_a_head_that_cannot_rank_is_refused(head: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="lm_head"):
        vocabulary_shard(head, SimpleNamespace(world_size=1))


def head_with(*, added: int = 0) -> SimpleNamespace:
    """A head as SGLang splits it; a tied one is the embedding itself, and looks the same."""
    indices = SimpleNamespace(
        num_added_elements=added, num_org_elements=6, org_vocab_start_index=12
    )
    return SimpleNamespace(weight=torch.zeros((8, 4)), shard_indices=indices)


def test_the_shard_of_a_split_head_leaves_its_padding_out() -> None:
    group = SimpleNamespace(world_size=2)
    shard = vocabulary_shard(head_with(), group)
    assert (shard.size, shard.first_token, shard.group) == (6, 12, group)


def test_a_head_that_cannot_be_split_is_refused_on_several_ranks() -> None:
    with pytest.raises(ValueError, match="use --tp-size 1"):
        vocabulary_shard(SimpleNamespace(weight=torch.zeros((8, 4))), SimpleNamespace(world_size=2))


def test_a_vocabulary_with_added_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="extended by added tokens"):
        vocabulary_shard(head_with(added=2), SimpleNamespace(world_size=1))


class Recorder:
    """Stands for the group: first it keeps what each rank gives, then it hands all of it out."""

    world_size = 2

    def __init__(self) -> None:
        self.given: list[list[torch.Tensor]] = [[], []]
        self.rank = 0
        self.complete = False
        self._calls = 0

    def enter(self, rank: int, *, complete: bool) -> None:
        self.rank, self.complete, self._calls = rank, complete, 0

    def all_gather_into_tensor(self, output: torch.Tensor, mine: torch.Tensor) -> None:
        if not self.complete:
            self.given[self.rank].append(mine.clone())
            output.zero_()
            return
        output.copy_(torch.cat([given[self._calls] for given in self.given]))
        self._calls += 1


@pytest.mark.parametrize("ties", [False, True])
def test_two_ranks_find_what_one_finds_and_exchange_only_candidates(ties: bool) -> None:
    rows, cap, split = 4, 8, 170
    logits = torch.from_numpy(drawn(rows, 320, ties=ties)).to(DEVICE)
    shards = [(logits[:, :split], 0), (logits[:, split:], split)]
    group = Recorder()
    for rank, (shard, first) in enumerate(shards):
        group.enter(rank, complete=False)
        rank_logits(shard, cap, first_token=first, group=group)
    expected_log_probs, expected_tokens = rank_logits(logits, cap)
    for rank, (shard, first) in enumerate(shards):
        group.enter(rank, complete=True)
        log_probs, tokens = rank_logits(shard, cap, first_token=first, group=group)
        assert torch.equal(tokens, expected_tokens)
        torch.testing.assert_close(log_probs, expected_log_probs, atol=2e-5, rtol=0)
    assert sum(given.numel() for given in group.given[0]) == rows * (2 * cap + 2)
