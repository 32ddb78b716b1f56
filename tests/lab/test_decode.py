"""Speculation changes the number of target passes and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddtree_ops_cli.errors import DdtreeError, UsageError
from ddtree_ops_cli.lab import gated_delta, target
from ddtree_ops_cli.lab.ancestry import Ancestry
from ddtree_ops_cli.lab.decode import MAX_BUDGET, Engine, Sampling, Speculation, Step
from tests.lab.random_pair import BLOCK, IM_END, IM_START, MASK, VOCABULARY, write_random_pair

PLAIN = Speculation()
LINEAR = Speculation("DFLASH")
TREE = Speculation("DDTREE")

NEAR_TIE = 1e-3
EXCUSED = 2
NEW_TOKENS = 128


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_random_pair(tmp_path_factory.mktemp("pair"))


def varied_prompts() -> list[list[int]]:
    """40 prompts: single tokens, runs, loops, chat frames and noise, of 1 to 200 tokens."""
    random = np.random.default_rng(7)
    noise = [random.integers(0, MASK, length).tolist() for length in range(1, 200, 11)]
    runs = [[token] * length for token, length in ((5, 1), (70, 3), (141, 40), (260, 90))]
    loops = [(list(range(first, first + 7)) * 9)[:50] for first in (3, 60, 200)]
    chats = [
        [IM_START, *random.integers(0, 256, length).tolist(), IM_END, IM_START]
        for length in range(4, 60, 4)
    ]
    return [*noise, *runs, *loops, *chats]


def greedy(engine: Engine, prompt: Sequence[int], new_tokens: int = NEW_TOKENS) -> list[int]:
    steps = engine.generate(prompt, Sampling(new_tokens, ignore_eos=True))
    return [token for step in steps for token in step.tokens]


@pytest.fixture(scope="module")
def plain(pair: tuple[Path, Path]) -> list[tuple[list[int], list[int]]]:
    """Every prompt with what plain decoding makes of it."""
    engine = Engine.load(*pair, PLAIN)
    return [(prompt, greedy(engine, prompt)) for prompt in varied_prompts()]


def assert_same_text(engine: Engine, plain: list[tuple[list[int], list[int]]]) -> None:
    """Each output equals plain decoding's, token for token.

    A divergence is excused where the target's two best logits are within NEAR_TIE, which rounding
    may swap; then that prompt is compared no further. At most EXCUSED prompts may need it.
    """
    excused = 0
    for prompt, expected in plain:
        found = greedy(engine, prompt)
        assert len(found) == len(expected)
        if found == expected:
            continue
        first = next(i for i in range(len(expected)) if found[i] != expected[i])
        prefix = np.array(prompt + expected[:first])
        logits, _ = engine.target.prefill(engine.target.initial_state(), prefix)
        second_best, best = np.sort(logits)[-2:]
        excused += 1
        assert best - second_best <= NEAR_TIE, f"{prompt} diverges at token {first}"
        assert excused <= EXCUSED, "too many near ties"


def test_there_are_forty_different_prompts() -> None:
    prompts = varied_prompts()
    assert len(prompts) == len({tuple(prompt) for prompt in prompts}) == 40


@pytest.mark.parametrize("speculation", [LINEAR, TREE], ids=["linear", "tree"])
def test_speculation_emits_the_text_of_plain_decoding(
    pair: tuple[Path, Path], plain: list[tuple[list[int], list[int]]], speculation: Speculation
) -> None:
    assert_same_text(Engine.load(*pair, speculation), plain)


def neighbour_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recurrence starts each node from the node before it in the array."""
    exact = gated_delta.delta_rule

    def faulty(*arguments: Any) -> Any:
        *others, ancestry = arguments
        return exact(*others, Ancestry.chain(len(ancestry.parents)))

    monkeypatch.setattr(gated_delta, "delta_rule", faulty)


def neighbour_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """The convolution takes the columns before a node in the array for its ancestors'."""
    exact = gated_delta.causal_conv

    def faulty(*arguments: Any) -> Any:
        *others, ancestry = arguments
        return exact(*others, Ancestry.chain(len(ancestry.parents)))

    monkeypatch.setattr(gated_delta, "causal_conv", faulty)


def commit_node_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recurrent state of the node before the accepted leaf is committed."""
    exact = target.state_after

    def faulty(trace: Any, state: Any, node: int, ancestry: Ancestry) -> Any:
        last = len(ancestry.parents) - 1
        # The last node of a prompt chunk, and the root alone, are left right.
        return exact(trace, state, node - 1 if 0 < node < last else node, ancestry)

    monkeypatch.setattr(target, "state_after", faulty)


def commit_accept_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The accepted count serves as the leaf's index, which is right for a chain only."""
    exact = target.state_after

    def faulty(trace: Any, state: Any, node: int, ancestry: Ancestry) -> Any:
        return exact(trace, state, int(ancestry.depths[node]), ancestry)

    monkeypatch.setattr(target, "state_after", faulty)


@pytest.mark.parametrize(
    "plant", [neighbour_state, neighbour_window, commit_node_before, commit_accept_length]
)
def test_the_comparison_sees_a_planted_fault(
    pair: tuple[Path, Path],
    plain: list[tuple[list[int], list[int]]],
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
) -> None:
    engine = Engine.load(*pair, TREE)
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="diverges at token"):
        assert_same_text(engine, plain)


@pytest.mark.parametrize(
    ("budget", "chain_seed"),
    [*product([1, BLOCK - 1, BLOCK, BLOCK + 1, 64], [0, 4, BLOCK]), (MAX_BUDGET, 4)],
)
def test_any_budget_and_chain_seed_emits_the_text_of_plain_decoding(
    pair: tuple[Path, Path],
    plain: list[tuple[list[int], list[int]]],
    budget: int,
    chain_seed: int,
) -> None:
    engine = Engine.load(*pair, Speculation("DDTREE", budget, chain_seed=chain_seed))
    for prompt, expected in plain[::10]:
        assert greedy(engine, prompt, 32) == expected[:32]


def totals(engine: Engine, prompts: list[list[int]]) -> tuple[int, int, int]:
    """Verify steps, accepted drafts and those off the spine."""
    steps: list[Step] = []
    for prompt in prompts:
        steps += [*engine.generate(prompt, Sampling(64, ignore_eos=True))][1:]
    return len(steps), sum(s.accepted for s in steps), sum(s.off_spine for s in steps)


def test_the_random_pair_accepts_on_the_spine_and_off_it(pair: tuple[Path, Path]) -> None:
    prompts = varied_prompts()[::4]
    steps, accepted, off_spine = totals(Engine.load(*pair, LINEAR), prompts)
    assert accepted > steps
    assert off_spine == 0
    tree_steps, _, tree_off_spine = totals(Engine.load(*pair, TREE), prompts)
    assert tree_steps < steps
    assert tree_off_spine > tree_steps / 10


def test_a_tree_that_keeps_the_whole_spine_never_accepts_less_than_the_chain(
    pair: tuple[Path, Path],
) -> None:
    tree = Engine.load(*pair, Speculation("DDTREE", 40, chain_seed=BLOCK - 1))
    chain = Engine.load(*pair, LINEAR)
    for prompt in varied_prompts()[::8]:
        sequence = list(prompt)
        for step in tree.generate(prompt, Sampling(64, ignore_eos=True)):
            if step.proposed:
                # The chain, started from the same sequence: its first step after the prefill of
                # all but the root.
                again = chain.generate(sequence[:-1], Sampling(64, ignore_eos=True))
                first, second = islice(again, 2)
                assert first.tokens == (sequence[-1],)
                assert step.accepted >= second.accepted
            sequence += step.tokens


@pytest.mark.parametrize("speculation", [LINEAR, TREE], ids=["linear", "tree"])
def test_every_step_goes_as_it_would_after_a_fresh_prefill(
    pair: tuple[Path, Path], speculation: Speculation
) -> None:
    """Nothing of rejected nodes is left in the target's state or in the drafter's context."""
    engine = Engine.load(*pair, speculation)
    for prompt in varied_prompts()[5::15]:
        sequence = list(prompt)
        for step in engine.generate(prompt, Sampling(64, ignore_eos=True)):
            if step.proposed:
                again = engine.generate(sequence[:-1], Sampling(64, ignore_eos=True))
                _, fresh = islice(again, 2)
                assert (fresh.accepted, fresh.off_spine) == (step.accepted, step.off_spine)
            sequence += step.tokens


@pytest.mark.parametrize(("budget", "chain_seed"), [(8, 0), (24, BLOCK - 1)])
def test_the_shadow_goes_like_the_chain_and_never_promises_what_the_tree_would_not_keep(
    pair: tuple[Path, Path], budget: int, chain_seed: int
) -> None:
    options = {"budget": budget, "chain_seed": chain_seed}
    shadow = Engine.load(*pair, Speculation("DDTREE", mode="shadow-linear", **options))
    tree = Engine.load(*pair, Speculation("DDTREE", **options))
    chain = Engine.load(*pair, LINEAR)
    won = lost = 0
    for prompt in varied_prompts()[::8]:
        sequence = list(prompt)
        steps = [*shadow.generate(prompt, Sampling(64, ignore_eos=True))]
        linear = [*chain.generate(prompt, Sampling(64, ignore_eos=True))]
        assert [replace(step, tree_at_least=None) for step in steps] == linear
        for step in steps:
            if step.proposed:
                # The tree, started from the same sequence.
                again = tree.generate(sequence[:-1], Sampling(64, ignore_eos=True))
                _, verified = islice(again, 2)
                assert step.tree_at_least is not None
                assert step.tree_at_least <= verified.accepted
                won += step.tree_at_least > step.accepted
                lost += step.tree_at_least < step.accepted
            sequence += step.tokens
    assert won > 0
    assert (lost == 0) == (chain_seed == BLOCK - 1)


def test_the_steps_of_a_request_add_up(pair: tuple[Path, Path]) -> None:
    engine = Engine.load(*pair, Speculation("DDTREE", 20))
    first, *others = engine.generate([1, 2, 3], Sampling(50, ignore_eos=True))
    assert (len(first.tokens), first.proposed, first.accepted, first.off_spine) == (1, 0, 0, 0)
    for step in others[:-1]:
        assert len(step.tokens) == step.accepted + 1
        assert step.proposed == 20
        assert step.off_spine <= step.accepted
    assert 1 + sum(len(step.tokens) for step in others) == 50


@pytest.mark.parametrize("speculation", [PLAIN, LINEAR, TREE], ids=["plain", "linear", "tree"])
class TestEnd:
    def test_a_stop_token_is_emitted_and_ends_the_request(
        self, pair: tuple[Path, Path], speculation: Speculation
    ) -> None:
        engine = Engine.load(*pair, speculation)
        text = greedy(engine, [9, 8, 7])
        stop = text[20]
        steps = engine.generate([9, 8, 7], Sampling(128, stop_token_ids=frozenset({stop})))
        found = [token for step in steps for token in step.tokens]
        assert found == text[: text.index(stop) + 1]

    def test_the_end_of_sequence_token_ends_the_request_unless_it_is_ignored(
        self, pair: tuple[Path, Path], tmp_path: Path, speculation: Speculation
    ) -> None:
        model = shutil.copytree(pair[0], tmp_path / "target")
        text = greedy(Engine.load(*pair, speculation), [9, 8, 7])
        end = text[12]
        (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [end, IM_END]}))
        engine = Engine.load(model, pair[1], speculation)
        assert engine.eos_token_ids == {end, IM_END}
        steps = engine.generate([9, 8, 7], Sampling(128))
        found = [token for step in steps for token in step.tokens]
        assert found == text[: text.index(end) + 1]
        assert greedy(engine, [9, 8, 7]) == text

    def test_output_stops_where_the_context_is_full(
        self, pair: tuple[Path, Path], speculation: Speculation
    ) -> None:
        expected = greedy(Engine.load(*pair, PLAIN), [4] * 10, 54)
        engine = Engine.load(*pair, speculation, context_length=64)
        assert greedy(engine, [4] * 10, 1000) == expected
        assert greedy(engine, [4] * 63, 1000) == greedy(Engine.load(*pair, PLAIN), [4] * 63, 1)

    def test_no_token_is_made_where_none_is_asked_for(
        self, pair: tuple[Path, Path], speculation: Speculation
    ) -> None:
        assert greedy(Engine.load(*pair, speculation), [4], 0) == []


def test_requests_do_not_touch_each_other(
    pair: tuple[Path, Path], plain: list[tuple[list[int], list[int]]]
) -> None:
    engine = Engine.load(*pair, TREE)
    requests = [
        (engine.generate(prompt, Sampling(40, ignore_eos=True)), expected[:40])
        for prompt, expected in plain[:3]
    ]
    found: list[list[int]] = [[], [], []]
    for _ in range(40):
        for (steps, _), tokens in zip(requests, found, strict=True):
            tokens += next(steps, Step((), 0, 0, 0)).tokens
    assert found == [expected for _, expected in requests]


@pytest.mark.parametrize("budget", [0, -1, MAX_BUDGET + 1])
def test_a_budget_out_of_range_is_refused(budget: int) -> None:
    with pytest.raises(UsageError, match=f"budget must be 1 to {MAX_BUDGET}, got {budget}"):
        Speculation("DDTREE", budget)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"algorithm": "EAGLE"}, "unknown speculative algorithm EAGLE"),
        ({"topk_cap": 0}, "topk_cap must be at least 1, got 0"),
        ({"chain_seed": -1}, "chain_seed must be at least 0, got -1"),
        ({"mode": "shadow"}, "unknown mode shadow; use tree or shadow-linear"),
    ],
)
def test_speculation_that_makes_no_sense_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Speculation(**wrong)


@pytest.mark.parametrize(
    ("budget", "wanted", "depth"),
    [(16, 40, 15), (4, 9, 4), (64, 3, 3), (16, None, 4), (64, None, 15)],
)
def test_the_chain_seed_is_capped_by_block_and_budget(
    budget: int, wanted: int | None, depth: int
) -> None:
    assert Speculation("DDTREE", budget, chain_seed=wanted).seed_depth(BLOCK) == depth


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "the prompt is empty"),
        ([1] * 64, "the prompt has 64 tokens, the context holds 64"),
        ([1, VOCABULARY], f"token ids outside 0 to {VOCABULARY - 1}"),
        ([-1], f"token ids outside 0 to {VOCABULARY - 1}"),
    ],
)
def test_a_prompt_that_cannot_be_decoded_is_refused_at_once(
    pair: tuple[Path, Path], prompt: list[int], message: str
) -> None:
    engine = Engine.load(*pair, PLAIN, context_length=64)
    with pytest.raises(UsageError, match=message):
        engine.generate(prompt, Sampling(4))


def test_speculation_needs_a_drafter_and_plain_decoding_reads_none(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="DFLASH needs a drafter"):
        Engine.load(pair[0], None, LINEAR)
    assert Engine.load(pair[0], tmp_path / "missing", PLAIN).block_size == 1


def test_a_context_beyond_the_model_is_refused(pair: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="context length must be 1 to 2048, got 4096"):
        Engine.load(*pair, PLAIN, context_length=4096)


def test_an_end_of_sequence_id_that_is_no_id_is_refused(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    model = shutil.copytree(pair[0], tmp_path / "target")
    (model / "generation_config.json").write_text('{"eos_token_id": "<|im_end|>"}')
    with pytest.raises(DdtreeError, match=r"eos_token_id is '.*', expected token ids"):
        Engine.load(model, None, PLAIN)
