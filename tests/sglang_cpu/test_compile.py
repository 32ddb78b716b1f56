"""Every kernel of the patch set compiles for the GPUs it is meant for, without one.

At the shapes of Qwen3.6-27B: vocabulary 248,320, block 16. Runs in a process of its own, as kernels
that were loaded for the interpreter cannot be compiled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHARED_MEMORY_LIMIT = 101_376
"""Bytes per block on sm_120; sm_90 has more."""


@pytest.fixture(scope="module")
def compiled() -> list[dict[str, object]]:
    script = Path(__file__).parent / "compile_kernels.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("capability", [90, 120])
def test_kernels_compile_and_fit_in_shared_memory(
    compiled: list[dict[str, object]], capability: int
) -> None:
    here = [kernel for kernel in compiled if kernel["capability"] == capability]
    assert {kernel["kernel"] for kernel in here} == {
        "_rank_parts_kernel",
        "_merge_parts_kernel",
        "_best_first_tree_kernel",
        "_tree_mask_kernel",
        "_accepted_path_kernel",
    }
    for kernel in here:
        assert kernel["cubin_bytes"] > 0
        assert kernel["shared"] <= SHARED_MEMORY_LIMIT, kernel
        assert kernel["spills"] == 0, kernel
