"""Starts that only a whole start refuses: SGLang itself, the loaded models, the memory."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from ddtree_ops_cli.patchset.apply import revert
from ddtree_ops_cli.patchset.verify import survey
from tests.sglang_cpu.server import refused
from tests.sglang_cpu.test_server import NO_RADIX, tree


def last_error(printed: str) -> str:
    """The message of the exception that ended the scheduler."""
    return [line for line in printed.splitlines() if "Error: " in line][-1]


def test_states_beyond_memory_are_refused_with_what_would_fit(
    engine: Path, hybrid: tuple[Path, Path]
) -> None:
    # 257 states for each of them: more gigabytes than a machine of this test has.
    flags = (*tree(256), NO_RADIX, "--max-running-requests", "1000000")
    said = last_error(refused(engine, *hybrid, *flags))
    assert "--speculative-ddtree-budget 256 keeps 257 recurrent states of 0.0" in said
    assert "with --max-running-requests 1 the largest budget that fits is 256; lower" in said


def test_a_drafter_whose_weights_read_other_layers_is_refused(
    engine: Path, hybrid: tuple[Path, Path], tmp_path: Path
) -> None:
    target, drafter = hybrid
    other = shutil.copytree(drafter, tmp_path / "drafter")
    config = json.loads((other / "config.json").read_text())
    config["dflash_config"]["target_layer_ids"] = [0, 1, 2]
    (other / "config.json").write_text(json.dumps(config))
    said = last_error(refused(engine, target, other, *tree(8), NO_RADIX))
    assert "DFLASH fc.weight shape mismatch" in said


def test_an_sglang_without_the_patches_does_not_know_ddtree(
    engine: Path, hybrid: tuple[Path, Path], tmp_path: Path
) -> None:
    bare = shutil.copytree(engine, tmp_path / "engine", copy_function=os.link)
    revert(bare)
    assert survey(bare).state == "unpatched"
    assert "DDTREE" in last_error(refused(bare, *hybrid, "--speculative-algorithm", "DDTREE"))
    assert "unrecognized arguments: --speculative-ddtree-budget 8" in refused(
        bare, *hybrid, *tree(8)
    )
    assert survey(engine).state == "applied"
