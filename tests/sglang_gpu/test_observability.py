"""What a server tells about its trees."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sglang_gpu.answers import Server
from tests.sglang_gpu.judge import TIE, compared
from tests.sglang_gpu.questions import suite

Serve = Callable[[str], Server]
Note = Callable[..., None]

TOKENS = 120


@pytest.mark.xdist_group("logged")
def test_answers_and_metrics_count_the_same_drafts(server: Serve, folder: Path) -> None:
    running = server("logged")
    names = ("sglang:spec_correct_drafts_total", "sglang:spec_off_spine_drafts_total")
    before = [running.metric(name) for name in names]
    metas = [running.generate(prompt, TOKENS)["meta_info"] for prompt in suite()]
    after = [running.metric(name) for name in names]
    told = [
        sum(meta[name] for meta in metas)
        for name in ("spec_num_correct_drafts", "spec_num_off_spine_drafts")
    ]
    # A finished request's last launched step may be counted by the metrics alone.
    for begun, ended, count in zip(before, after, told, strict=True):
        assert 0 < count <= ended - begun <= 1.2 * count + 15 * len(metas)
    assert running.metric("sglang:spec_num_draft_tokens") == 25
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert all(step["mode"] == "tree" for step in steps)
    assert sum(sum(step["accepted"]) for step in steps) >= told[0]
    assert sum(sum(step["off_spine"]) for step in steps) >= told[1]


@pytest.mark.xdist_group("shadow")
def test_shadow_mode_answers_as_the_chain_and_logs_what_a_tree_would_win(
    server: Serve, folder: Path, note: Note
) -> None:
    shadow, linear = server("shadow"), server("linear-bf16")
    answers = [one.outputs(suite(), TOKENS) for one in (shadow, linear)]
    verdict = compared(suite(), *answers)
    assert verdict.worst <= TIE["bfloat16"], verdict
    steps = [json.loads(line) for line in (folder / "shadow.jsonl").read_text().splitlines()]
    assert all(step["mode"] == "shadow-linear" for step in steps)
    linear_drafts = sum(sum(step["accepted"]) for step in steps)
    tree_drafts = sum(sum(step["tree_at_least"]) for step in steps)
    note(steps=len(steps), linear=linear_drafts, tree_at_least=tree_drafts)
    assert tree_drafts > linear_drafts


@pytest.mark.xdist_group("simulated-linear")
def test_simulated_lengths_along_the_spine_and_off_it(server: Serve, note: Note) -> None:
    for name in ("simulated-linear", "simulated-spine", "simulated-off-spine"):
        running = server(name)
        metas = [
            running.generate(prompt, 200, ignore_eos=True)["meta_info"] for prompt in suite()[:4]
        ]
        drafts = sum(meta["spec_num_correct_drafts"] for meta in metas)
        steps = sum(meta["spec_verify_ct"] for meta in metas)
        assert 1 + drafts / steps == 5, name
        if name != "simulated-linear":
            off_spine = sum(meta["spec_num_off_spine_drafts"] for meta in metas)
            # The last nodes of a tree are rarely on its spine.
            assert off_spine > 0.95 * drafts if name == "simulated-off-spine" else off_spine == 0
        latency = sum(meta["e2e_latency"] for meta in metas)
        note(server=name, ms_per_step=round(1e3 * latency / steps, 3), accept_length=5)
