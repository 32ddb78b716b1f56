"""Compiles the patch set's kernels ahead of time and prints what each needs, as JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import triton
from sglang.srt.speculative.ddtree import accept, candidates, tree
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

VOCABULARY, DEPTH, BATCH = 248_320, 15, 16
PARTS = triton.cdiv(VOCABULARY, candidates.PART_SIZE)
INT32, INT64, FLOAT, BYTES = "*i32", "*i64", "*fp32", "*u8"

Kernel = tuple[Any, dict[str, str], dict[str, int | bool], int]


def kernels(budget: int, cap: int) -> Iterator[Kernel]:
    """Kernel, types of its run-time parameters, compile-time parameters, warps."""
    shape = tree.TreeShape(budget, DEPTH, cap, budget // 2)
    nodes = {"NODES": shape.nodes, "NODES_P2": triton.next_power_of_2(shape.nodes)}
    yield (
        candidates._rank_parts_kernel,
        {
            "logits_ptr": "*bf16",
            "values_ptr": FLOAT,
            "tokens_ptr": INT64,
            "tops_ptr": FLOAT,
            "sums_ptr": FLOAT,
        },
        {"K": cap, "PART_SIZE": candidates.PART_SIZE},
        8,
    )
    for normalise, parts in ((True, PARTS), (False, PARTS // 2 + 1), (True, 2)):
        yield (
            candidates._merge_parts_kernel,
            {
                "values_ptr": FLOAT,
                "tokens_ptr": INT64,
                "tops_ptr": FLOAT,
                "sums_ptr": FLOAT,
                "merged_values_ptr": FLOAT,
                "merged_tokens_ptr": INT64,
                "merged_tops_ptr": FLOAT,
                "merged_sums_ptr": FLOAT,
            },
            {
                "K": cap,
                "PARTS_P2": triton.next_power_of_2(parts),
                "ENTRIES_P2": triton.next_power_of_2(parts * cap),
                "NORMALISE": normalise,
            },
            4,
        )
    yield (
        tree._best_first_tree_kernel,
        {
            "log_probs_ptr": FLOAT,
            "candidates_ptr": INT64,
            "roots_ptr": INT64,
            "prefix_lens_ptr": INT64,
            "pool_indices_ptr": INT64,
            "req_to_token_ptr": INT32,
            "tokens_ptr": INT64,
            "parents_ptr": INT32,
            "positions_ptr": INT64,
            "next_token_ptr": INT64,
            "next_sibling_ptr": INT64,
            "on_spine_ptr": INT32,
            "slots_ptr": INT64,
        },
        {**nodes, "DEPTH": DEPTH, "K": cap, "SEED": shape.seed},
        1,
    )
    yield (
        tree._tree_mask_kernel,
        {"parents_ptr": INT32, "prefix_lens_ptr": INT64, "mask_ptr": BYTES},
        {**nodes, "PATH": shape.path, "BATCH_P2": BATCH},
        1,
    )
    yield (
        accept._accepted_path_kernel,
        {
            "accept_index_ptr": INT32,
            "accept_lens_ptr": INT32,
            "predict_ptr": INT32,
            "prefix_lens_ptr": INT64,
            "slots_ptr": INT64,
            "on_spine_ptr": INT32,
            "tokens_ptr": INT64,
            "bonus_ptr": INT64,
            "new_seq_lens_ptr": INT64,
            "rows_ptr": INT64,
            "positions_ptr": INT64,
            "from_slots_ptr": INT64,
            "to_slots_ptr": INT64,
            "off_spine_ptr": INT32,
        },
        {
            "NODES": shape.nodes,
            "PATH": shape.path,
            "PATH_P2": triton.next_power_of_2(shape.path),
        },
        1,
    )


def needs(kernel: Kernel, capability: int) -> dict[str, Any]:
    function, types, constants, warps = kernel
    signature: Mapping[str, str] = {
        name: "constexpr" if name in constants else types.get(name, "i32")
        for name in function.arg_names
    }
    source = ASTSource(
        function,
        signature,
        {(function.arg_names.index(name),): value for name, value in constants.items()},
    )
    built = triton.compile(
        source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps}
    )
    return {
        "kernel": function.__name__,
        "capability": capability,
        "constants": constants,
        "shared": built.metadata.shared,
        "cubin_bytes": len(built.asm["cubin"]),
        **resources(built.asm["ptx"], capability),
    }


def resources(ptx: str, capability: int) -> dict[str, int]:
    """Registers and spilled bytes, from ptxas."""
    ptxas = get_ptxas(capability).path
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        architecture = f"sm_{capability}a"
        command = [ptxas, "-v", f"--gpu-name={architecture}", str(path), "-o", f"{path}.cubin"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = done.stderr + done.stdout
    (registers,) = re.findall(r"Used (\d+) registers", report)
    spilled = sum(int(number) for number in re.findall(r"(\d+) bytes spill stores", report))
    return {"registers": int(registers), "spills": spilled}


if __name__ == "__main__":
    found = [
        needs(kernel, capability)
        for budget, cap in ((16, 8), (64, 8), (256, 18))
        for kernel in kernels(budget, cap)
        for capability in (90, 120)
    ]
    json.dump(found, sys.stdout)
