"""Real SGLang, dense and hybrid, linear and tree: its tokens and its counts.

Each server takes about a minute to start and seconds per step, so every one answers several
questions.
"""

from __future__ import annotations

import json
import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from ddtree_ops_cli.lab.decode import Engine, Speculation
from tests.sglang_cpu.conftest import Tally
from tests.sglang_cpu.reference import (
    Prompts,
    dense_prompts,
    greedy,
    greedy_digits,
    lab_steps,
    lively_prompts,
    random_prompts,
)
from tests.sglang_cpu.server import Server, serving

TOKENS = 12
NO_OVERLAP = "--disable-overlap-schedule"
NO_RADIX = "--disable-radix-cache"
# With overlap, DDTREE itself has SGLang keep states aside (extra_buffer).
EARLY_STATES = ("--mamba-track-interval", "64")


def tree(budget: int, *more: str) -> tuple[str, ...]:
    flags = ("--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", str(budget))
    return (*flags, *more)


LINEAR = ("--speculative-algorithm", "DFLASH")


@dataclass
class Case:
    """A pair of models, its prompts and what transformers answers."""

    target: Path
    drafter: Path
    prompts: Prompts
    answers: Prompts = field(init=False)

    def __post_init__(self) -> None:
        self.answers = greedy(self.target, self.prompts, TOKENS)

    def serving(self, engine: Path, log: Path, *flags: str) -> AbstractContextManager[Server]:
        return serving(engine, self.target, self.drafter, *flags, log=log)


@pytest.fixture(scope="module")
def on_hybrid(hybrid: tuple[Path, Path]) -> Case:
    return Case(*hybrid, prompts=lively_prompts(*hybrid, TOKENS))


@pytest.fixture(scope="module")
def on_dense(dense: tuple[Path, Path]) -> Case:
    return Case(*dense, prompts=dense_prompts())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def assert_answers(case: Case, answers: list[dict[str, Any]], tally: Tally) -> dict[str, int]:
    """Tokens equal to transformers'; returns the counts of all requests together."""
    assert [answer["output_ids"] for answer in answers] == case.answers
    metas = [answer["meta_info"] for answer in answers]
    names = ("spec_verify_ct", "spec_num_correct_drafts", "spec_num_off_spine_drafts")
    counts = {name: sum(meta[name] for meta in metas) for name in names if name in metas[0]}
    accept_length = 1 + counts["spec_num_correct_drafts"] / counts["spec_verify_ct"]
    assert accept_length > 1
    tally(f"accept length {accept_length:.2f}, {counts}")
    return counts


def assert_steps_of_the_lab(case: Case, speculation: Speculation, answers: list[dict]) -> None:
    """Per request: as many passes, accepted drafts and drafts off the spine as the lab engine."""
    lab = Engine.load(case.target, case.drafter, speculation)
    for prompt, answer in zip(case.prompts, answers, strict=True):
        steps = lab_steps(lab, prompt, TOKENS)
        assert answer["output_ids"] == [token for step in steps for token in step.tokens]
        meta = answer["meta_info"]
        assert meta["spec_verify_ct"] == len(steps) - 1
        assert meta["spec_num_correct_drafts"] == sum(step.accepted for step in steps)
        assert meta["spec_num_proposed_drafts"] == sum(step.proposed for step in steps)
        if "spec_num_off_spine_drafts" in meta:
            assert meta["spec_num_off_spine_drafts"] == sum(step.off_spine for step in steps)


def test_linear_on_a_hybrid(engine: Path, on_hybrid: Case, log: Path, tally: Tally) -> None:
    with on_hybrid.serving(engine, log, *LINEAR, NO_OVERLAP, NO_RADIX) as server:
        answers = server.generate_together(on_hybrid.prompts, TOKENS)
    assert_answers(on_hybrid, answers, tally)
    assert_steps_of_the_lab(on_hybrid, Speculation("DFLASH"), answers)


def test_a_tree_wider_than_the_block_on_a_hybrid_with_overlap_and_states_kept_for_reuse(
    engine: Path, on_hybrid: Case, log: Path, tmp_path: Path, tally: Tally
) -> None:
    steps = tmp_path / "steps.jsonl"
    # A state is kept where the committed length passes a multiple of 64, here within a tree.
    flags = tree(17, "--speculative-ddtree-log-steps", str(steps), *EARLY_STATES)
    crossing = (random_prompts(1, seed=3)[0] * 64)[:58]
    with on_hybrid.serving(engine, log, *flags) as server:
        together = server.generate_together(on_hybrid.prompts, TOKENS)
        alone = server.generate(on_hybrid.prompts[0], TOKENS)
        crossed = server.generate(crossing, TOKENS)
        longer = crossing + crossed["output_ids"]
        reused = server.generate(longer, TOKENS)
        information = server.get("/server_info").json()
        metrics = server.get("/metrics").text
    counts = assert_answers(on_hybrid, together, tally)
    assert counts["spec_num_off_spine_drafts"] > 0
    assert_steps_of_the_lab(on_hybrid, Speculation("DDTREE", budget=17), together)
    assert alone["output_ids"] == on_hybrid.answers[0]
    assert crossed["output_ids"] == greedy(on_hybrid.target, [crossing], TOKENS)[0]
    assert reused["meta_info"]["cached_tokens"] == 64
    assert reused["output_ids"] == greedy(on_hybrid.target, [longer], TOKENS)[0]

    told = {key: information[f"speculative_ddtree_{key}"] for key in ("budget", "topk_cap")}
    assert told == {"budget": 17, "topk_cap": 8}
    assert information["speculative_ddtree_chain_seed"] == 4
    assert information["speculative_ddtree_mode"] == "tree"
    assert information["speculative_ddtree_state"] == "exact"

    answers = [*together, alone, crossed, reused]
    all_off_spine = sum(answer["meta_info"]["spec_num_off_spine_drafts"] for answer in answers)
    (line,) = [
        line
        for line in metrics.splitlines()
        if line.startswith("sglang:spec_off_spine_drafts_total{")
    ]
    assert float(line.split()[-1]) >= all_off_spine
    logged = [json.loads(line) for line in steps.read_text().splitlines()]
    assert sum(sum(step["off_spine"]) for step in logged) >= all_off_spine


def test_a_tree_smaller_than_the_block_on_a_hybrid_with_prefix_reuse(
    engine: Path, on_hybrid: Case, log: Path, tally: Tally
) -> None:
    with on_hybrid.serving(engine, log, *tree(8), NO_OVERLAP) as server:
        answers = [server.generate(prompt, TOKENS) for prompt in on_hybrid.prompts]
        longer = on_hybrid.prompts[0] + on_hybrid.answers[0] + [5]
        reused = server.generate(longer, TOKENS)
        constrained = server.post(
            on_hybrid.prompts[0], max_new_tokens=20, regex="[0-9]{6}", ignore_eos=False
        ).json()
        refusals = {
            name: server.post([1, 2], max_new_tokens=2, **{name: value})
            for name, value in (
                ("temperature", 0.7),
                ("frequency_penalty", 0.5),
                ("min_new_tokens", 1),
            )
        }
        logprobs = server.post_body({"input_ids": [1, 2], "return_logprob": True})
    counts = assert_answers(on_hybrid, answers, tally)
    assert counts["spec_num_off_spine_drafts"] > 0
    assert_steps_of_the_lab(on_hybrid, Speculation("DDTREE", budget=8), answers)
    assert reused["meta_info"]["cached_tokens"] > 0
    assert reused["output_ids"] == greedy(on_hybrid.target, [longer], TOKENS)[0]
    assert constrained["text"] == greedy_digits(on_hybrid.target, on_hybrid.prompts[0], 6)
    for name, response in refusals.items():
        assert response.status_code == 400, (name, response.text)
        assert f"DDTREE does not support {name}" in response.text or name == "temperature"
        assert "DDTREE" in response.text
    assert logprobs.status_code == 400, logprobs.text
    assert "does not support return_logprob" in logprobs.text


def test_shadow_mode_answers_like_the_chain_and_logs_what_the_tree_would_win(
    engine: Path, on_hybrid: Case, log: Path, tmp_path: Path
) -> None:
    steps = tmp_path / "steps.jsonl"
    flags = (
        *tree(24, "--speculative-ddtree-chain-seed", "15"),
        *("--speculative-ddtree-mode", "shadow-linear"),
        *("--speculative-ddtree-log-steps", str(steps)),
    )
    with on_hybrid.serving(engine, log, *flags, NO_OVERLAP, NO_RADIX) as server:
        answers = [server.generate(prompt, TOKENS) for prompt in on_hybrid.prompts[:2]]
    assert [answer["output_ids"] for answer in answers] == on_hybrid.answers[:2]
    # The server probes its own health too: its steps stand first.
    logged = [json.loads(line) for line in steps.read_text().splitlines()]
    assert all(step["mode"] == "shadow-linear" for step in logged)
    won = [step["tree_at_least"][0] - step["accepted"][0] for step in logged]
    assert min(won) == 0, "the whole spine is in the tree, so it never loses"
    assert max(won) == 1

    shadow = Speculation("DDTREE", budget=24, chain_seed=15, mode="shadow-linear")
    lab = Engine.load(on_hybrid.target, on_hybrid.drafter, shadow)
    expected = [
        {"mode": shadow.mode, "accepted": [step.accepted], "tree_at_least": [step.tree_at_least]}
        for prompt in on_hybrid.prompts[:2]
        for step in lab_steps(lab, prompt, TOKENS)[1:]
    ]
    assert logged[-len(expected) :] == expected


def test_linear_on_a_dense_target(engine: Path, on_dense: Case, log: Path, tally: Tally) -> None:
    with on_dense.serving(engine, log, *LINEAR, NO_OVERLAP) as server:
        answers = server.generate_together(on_dense.prompts, TOKENS)
    assert_answers(on_dense, answers, tally)


def test_a_tree_on_a_dense_target_with_overlap_and_prefix_reuse(
    engine: Path, on_dense: Case, log: Path, tally: Tally
) -> None:
    with on_dense.serving(engine, log, *tree(16)) as server:
        together = server.generate_together(on_dense.prompts, TOKENS)
        longer = on_dense.prompts[0] + on_dense.answers[0] + [5]
        reused = server.generate(longer, TOKENS)
    counts = assert_answers(on_dense, together, tally)
    assert counts["spec_num_off_spine_drafts"] > 0
    assert reused["meta_info"]["cached_tokens"] > 0
    assert reused["output_ids"] == greedy(on_dense.target, [longer], TOKENS)[0]


def test_a_tied_head_drafts_and_verifies(
    engine: Path, dense: tuple[Path, Path], log: Path, tmp_path: Path
) -> None:
    target, drafter = shutil.copytree(dense[0], tmp_path / "target"), dense[1]
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    weights = load_file(target / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    prompts = dense_prompts()[:1]
    with serving(engine, target, drafter, *tree(8), log=log) as server:
        answer = server.generate(prompts[0], 6)
    assert answer["output_ids"] == greedy(target, prompts, 6)[0]
    assert answer["meta_info"]["spec_num_proposed_drafts"] > 0
