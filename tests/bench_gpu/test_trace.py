"""A step is found in a trace, and its time is divided as it was."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ddtree_ops_cli.errors import DdtreeError
from tools.bench_gpu.trace import Gap, device_work, family, profile_file, profile_steps


def event(name: str, ts: float, dur: float, cat: str = "kernel") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur}


def step(begin: float) -> list[dict[str, Any]]:
    """1,000 us: two products of 300, a copy on another stream beside the second, one pause."""
    return [
        event("nvjet_tst_gemm", begin, 300.0),
        event("_best_first_tree_kernel", begin + 300, 50.0),
        event("nvjet_tst_gemm", begin + 450, 300.0),
        event("Memcpy DtoD", begin + 700, 100.0, "gpu_memcpy"),
        event("cudaLaunchKernel", begin + 10, 900.0, "cuda_runtime"),
    ]


def trace(steps: int, first: float = 5_000.0) -> list[dict[str, Any]]:
    return [one for number in range(steps) for one in step(first + 1_000 * number)]


def test_only_what_ran_on_the_device_counts() -> None:
    assert {one.name for one in device_work(trace(1))} == {
        "nvjet_tst_gemm",
        "_best_first_tree_kernel",
        "Memcpy DtoD",
    }


def test_whole_steps_between_two_markers() -> None:
    found = profile_steps(device_work(trace(20)), asked=20)
    assert found.marker in ("_best_first_tree_kernel", "Memcpy DtoD")
    assert found.steps == 19
    assert found.step_ms == pytest.approx(1.0)
    # 300 + 50 + 300 and the 50 of the copy that the second product does not cover.
    assert found.busy_ms == pytest.approx(0.7)
    assert found.idle_ms == pytest.approx(0.3)
    assert found.launches == pytest.approx(4, abs=0.2)


def test_streams_that_overlap_are_busy_once_and_both_in_their_families() -> None:
    found = profile_steps(device_work(trace(20)), asked=20)
    shares = {share.name: share.ms for share in found.families}
    assert shares["matrix products"] == pytest.approx(0.6)
    assert shares["copies"] == pytest.approx(0.1)
    assert shares["tree"] == pytest.approx(0.05)
    assert sum(shares.values()) > found.busy_ms
    alone = {share.name: share.alone_ms for share in found.families}
    assert alone["matrix products"] == pytest.approx(0.55)
    assert alone["copies"] == pytest.approx(0.05)
    assert sum(alone.values()) == pytest.approx(found.busy_ms - 0.05)


def test_pauses_are_named_by_their_neighbours() -> None:
    found = profile_steps(device_work(trace(20)), asked=20)
    pauses = {(gap.after, gap.before): gap for gap in found.gaps}
    assert pauses["Memcpy DtoD", "nvjet_tst_gemm"].ms == pytest.approx(0.2)
    assert pauses["_best_first_tree_kernel", "nvjet_tst_gemm"].ms == pytest.approx(0.1)
    assert isinstance(found.gaps[0], Gap)
    assert sum(gap.ms for gap in found.gaps) == pytest.approx(found.idle_ms)


def test_a_step_that_the_profiler_cut_off_does_not_shift_the_mean() -> None:
    cut = [one for one in trace(20) if one["ts"] > 5_400]
    assert profile_steps(device_work(cut), asked=20).step_ms == pytest.approx(1.0)


def test_without_a_kernel_a_step_the_whole_trace_is_divided() -> None:
    work = device_work([event("gemm", 10.0 * number, 10.0) for number in range(400)])
    found = profile_steps(work, asked=20)
    assert found.marker is None
    assert found.step_ms == pytest.approx(0.2)
    assert found.idle_ms == pytest.approx(0.0)


def test_work_of_no_duration_hides_nothing() -> None:
    events = [
        *trace(20),
        *(event("Memset", 5_010.0 + 1_000 * n, 0.0, "gpu_memset") for n in range(20)),
    ]
    alone = {
        one.name: one.alone_ms for one in profile_steps(device_work(events), asked=20).families
    }
    assert alone["matrix products"] == pytest.approx(0.55)


def test_an_empty_trace_is_no_profile() -> None:
    with pytest.raises(DdtreeError, match="no device work"):
        profile_steps(device_work([event("aten::mm", 0, 5, "cpu_op")]), asked=20)


def test_a_trace_is_read_once_it_is_whole(tmp_path: Path) -> None:
    whole = gzip.compress(json.dumps({"traceEvents": trace(20)}).encode())
    file = tmp_path / "steps.trace.json.gz"
    file.write_bytes(whole[:-20])
    assert profile_file(file, 20) is None
    file.write_bytes(whole)
    assert profile_file(file, 20) == profile_steps(device_work(trace(20)), 20)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fused_sigmoid_gating_delta_rule_update_kernel", "gated DeltaNet"),
        ("_causal_conv1d_update_kernel", "convolution"),
        ("_rank_parts_kernel", "tree"),
        ("void VerifyTreeGreedy<int, long>(...)", "tree"),
        ("nvjet_tst_192x16_64x7_2x1_v_bz_TNT", "matrix products"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16>", "matrix products"),
        ("_fwd_kernel", "attention"),
        ("FusedAddRMSNormKernel", "norms"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
        ("void at::native::vectorized_elementwise_kernel<4, ...>", "element-wise"),
        ("something_new", "other"),
    ],
)
def test_families(name: str, expected: str) -> None:
    assert family(name) == expected
