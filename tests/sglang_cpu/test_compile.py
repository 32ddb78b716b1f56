"""Every kernel of the patch set compiles for the GPUs it is meant for, without one.

At the shapes of Qwen3.6-27B: vocabulary 248,320, block 16. Runs in a process of its own, as kernels
that were loaded for the interpreter cannot be compiled.
"""

from __future__ import annotations

import ast
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


def jitted(engine: Path) -> tuple[set[str], set[str]]:
    """Names of the functions of the patch set that Triton compiles, and of those that others of
    them call."""
    found: dict[str, ast.FunctionDef] = {}
    for module in sorted((engine / "sglang/srt/speculative/ddtree").glob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.FunctionDef) and any(
                "jit" in ast.unparse(decorator) for decorator in node.decorator_list
            ):
                found[node.name] = node
    called = {
        inner.func.id
        for node in found.values()
        for inner in ast.walk(node)
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name)
    }
    return set(found), called & set(found)


@pytest.mark.parametrize("capability", [90, 120])
def test_kernels_compile_and_fit_in_shared_memory(
    compiled: list[dict[str, object]], capability: int, engine: Path
) -> None:
    here = [kernel for kernel in compiled if kernel["capability"] == capability]
    all_jitted, called = jitted(engine)
    assert {kernel["kernel"] for kernel in here} == all_jitted - called, "one is not compiled"
    assert len(here) > 0
    for kernel in here:
        assert kernel["cubin_bytes"] > 0
        assert kernel["shared"] <= SHARED_MEMORY_LIMIT, kernel
        assert kernel["spills"] == 0, kernel
