"""Two ranks: the same trees from the same logits, the same answers, few bytes exchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sglang_gpu.answers import Server
from tests.sglang_gpu.fleet import FLEET, visible_gpus
from tests.sglang_gpu.judge import TIE, compared
from tests.sglang_gpu.questions import drawn, suite

Serve = Callable[[str], Server]
Note = Callable[..., None]


@pytest.mark.xdist_group("tree-16-bf16-tp2")
def test_two_ranks_answer_as_one(server: Serve, note: Note) -> None:
    prompts = [*suite(), *drawn(8, seed=21)]
    two, one = server("tree-16-bf16-tp2"), server("tree-16-bf16")
    ours = two.outputs(prompts, 160)
    verdict = compared(prompts, ours, one.outputs(prompts, 160))
    note(verdict=str(verdict))
    assert verdict.worst <= TIE[FLEET[two.name].dtype], verdict
    batched = two.outputs(prompts, 160, together=8)
    verdict = compared(prompts, batched, ours)
    assert verdict.worst <= TIE[FLEET[two.name].dtype], verdict


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_two_ranks_build_one_tree(backend: str, tmp_path: Path, note: Note) -> None:
    if backend == "nccl" and len(visible_gpus()) < 2:
        pytest.skip("needs two GPUs")
    out = tmp_path / "ranks.json"
    command = [sys.executable, "-m", "tests.sglang_gpu.two_ranks", backend, str(out)]
    path = f"{os.environ['DDTREE_SGLANG_GPU']}:{os.environ.get('PYTHONPATH', '')}"
    subprocess.run(command, check=True, timeout=240, env={**os.environ, "PYTHONPATH": path})
    found = json.loads(out.read_text())
    note(**found)
    assert found["trees_differ"] == 0
    assert found["trees"] > 0
    # Per row of the block: K values, their ids, a maximum and a sum.
    assert found["bytes_per_row"] == found["cap"] * (4 + 8) + 8
