"""Greedy tokens of trees of every size, against the chain and against the lab engine."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ddtree_ops_cli.lab.decode import Engine, Sampling, Speculation
from tests.sglang_gpu.answers import Outputs, Server
from tests.sglang_gpu.fleet import BUDGETS, FLEET, WEIGHTS, linear_of, on
from tests.sglang_gpu.judge import TIE, compared
from tests.sglang_gpu.questions import drawn, suite

Serve = Callable[[str], Server]
Note = Callable[..., None]

TOKENS = 160
LONG = 2000
LINEAR = [name for name in FLEET if name.startswith("linear-")]
TREES = [name for name in FLEET if name.startswith("tree-")]


def once(folder: Path, what: str, compute: Callable[[], Outputs]) -> Outputs:
    """Computed by one worker, read by the others."""
    file = folder / f"{what}.outputs"
    with (folder / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            file.write_text(json.dumps(compute()))
    found: Outputs = json.loads(file.read_text())
    return found


def lab_outputs() -> Outputs:
    engine = Engine.load(WEIGHTS / "target", WEIGHTS / "drafter", Speculation("DFLASH"))
    sampling = Sampling(max_new_tokens=TOKENS)
    return [
        [token for step in engine.generate(prompt, sampling) for token in step.tokens]
        for prompt in suite()
    ]


@pytest.mark.parametrize("name", on(*LINEAR, *TREES))
def test_an_answer_alone_is_the_lab_engines(
    name: str, server: Serve, folder: Path, note: Note
) -> None:
    running = server(name)
    verdict = compared(suite(), running.outputs(suite(), TOKENS), once(folder, "lab", lab_outputs))
    note(server=name, against="lab", verdict=str(verdict))
    assert verdict.worst <= TIE[FLEET[name].dtype], verdict


@pytest.mark.parametrize("name", on(*TREES))
def test_answers_in_batches_of_one_to_eight_are_the_chains(
    name: str, server: Serve, folder: Path, note: Note
) -> None:
    prompts = drawn(36, seed=11)
    running, linear = server(name), server(linear_of(name))
    reference = once(
        folder, f"{linear.name}.batches", lambda: linear.outputs(prompts, TOKENS, together=1)
    )
    ours: Outputs = []
    for together in range(1, 9):
        ours += running.outputs(prompts[len(ours) : len(ours) + together], TOKENS, together)
    verdict = compared(prompts, ours, reference)
    note(server=name, against=linear.name, verdict=str(verdict))
    assert verdict.worst <= TIE[FLEET[name].dtype], verdict


@pytest.mark.parametrize("name", on(*TREES))
def test_two_thousand_tokens_are_the_chains(
    name: str, server: Serve, folder: Path, note: Note
) -> None:
    prompts = suite()[:3]

    def long_outputs(one: Server) -> Outputs:
        return one.outputs(prompts, LONG, together=len(prompts), ignore_eos=True)

    running, linear = server(name), server(linear_of(name))
    reference = once(folder, f"{linear.name}.long", lambda: long_outputs(linear))
    ours = long_outputs(running)
    assert [len(answer) for answer in ours] == [LONG] * len(prompts)
    verdict = compared(prompts, ours, reference)
    note(server=name, against=linear.name, long=True, verdict=str(verdict))
    assert verdict.worst <= TIE[FLEET[name].dtype], verdict


@pytest.mark.parametrize("name", on(*(f"tree-{budget}-bf16" for budget in BUDGETS)))
def test_the_tree_accepts_what_the_lab_engines_tree_accepts(
    name: str, server: Serve, note: Note
) -> None:
    """Rounding moves a node in or out of a tree now and then; the mean stays."""
    running = server(name)
    budget = int(name.split("-")[1])
    engine = Engine.load(
        WEIGHTS / "target", WEIGHTS / "drafter", Speculation("DDTREE", budget=budget)
    )
    counted = {"steps": 0, "accepted": 0, "off_spine": 0}
    expected = dict(counted)
    for prompt in suite():
        meta = running.generate(prompt, TOKENS)["meta_info"]
        counted["steps"] += meta["spec_verify_ct"]
        counted["accepted"] += meta["spec_num_correct_drafts"]
        counted["off_spine"] += meta["spec_num_off_spine_drafts"]
        assert meta["spec_num_proposed_drafts"] == budget * meta["spec_verify_ct"]
        steps = list(engine.generate(prompt, Sampling(max_new_tokens=TOKENS)))
        expected["steps"] += len(steps) - 1
        expected["accepted"] += sum(step.accepted for step in steps)
        expected["off_spine"] += sum(step.off_spine for step in steps)
    note(budget=budget, counted=counted, lab=expected)
    ours = 1 + counted["accepted"] / counted["steps"]
    theirs = 1 + expected["accepted"] / expected["steps"]
    assert ours == pytest.approx(theirs, rel=0.03)
    assert counted["off_spine"] == pytest.approx(expected["off_spine"], rel=0.25, abs=5)


def tokens_and_steps(server: Server) -> list[object]:
    """Of 32 answers: tokens, verify passes, drafts by accepted length, drafts off the spine."""
    counts = ("spec_verify_ct", "spec_correct_drafts_histogram", "spec_num_off_spine_drafts")
    found: list[object] = []
    for prompt in [*suite(), *drawn(16, seed=3)]:
        answer = server.generate(prompt, TOKENS, ignore_eos=True)
        found.append([answer["output_ids"], *(answer["meta_info"][name] for name in counts)])
    return found


@pytest.mark.xdist_group("eager")
def test_replayed_graphs_give_the_tokens_and_steps_of_eager_passes(
    server: Serve, note: Note
) -> None:
    """Byte for byte: the same kernels on the same shapes."""
    replayed, eager = tokens_and_steps(server("replayed")), tokens_and_steps(server("eager"))
    note(answers=len(eager), equal=sum(map(list.__eq__, replayed, eager)))
    assert replayed == eager


@pytest.mark.parametrize("name", on("tree-8-bf16", "tree-64-bf16", "tree-16-bf16-tp2"))
def test_graphs_are_replayed_and_not_only_captured(name: str, server: Serve) -> None:
    running = server(name)
    running.generate(suite()[0], 32)
    modes = {
        line.split('mode="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1])
        for line in running.get("/metrics").text.splitlines()
        if line.startswith("sglang:cuda_graph_passes_total{")
    }
    assert modes.get("decode_cuda_graph", 0) > 0, modes
    assert modes.get("decode_none", 0) == 0, modes
