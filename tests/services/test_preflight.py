"""What a deploy is told before it begins: refusals with their mend, warnings, and the plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddtree_ops_cli.errors import DdtreeError, UsageError
from ddtree_ops_cli.hosts.gpus import Gpu, Holder
from ddtree_ops_cli.hosts.shell import ThisMachine
from ddtree_ops_cli.services.engine_options import EngineOptions
from ddtree_ops_cli.services.memory import divide
from ddtree_ops_cli.services.memory_plan import Wanted, for_gpus
from ddtree_ops_cli.services.preflight import Models, mend, preflight, warnings
from ddtree_ops_cli.services.shapes import MIB, Pair
from ddtree_ops_cli.services.spec import ServiceSpec, Tree
from ddtree_ops_cli.services.weights_verdict import Weights
from tests.services.test_memory import CASES, GIB, RTX_PRO_6000, ddtree, pair, released

LAB = Path(__file__).parents[2] / "ddtree_ops_cli/lab/weights"


def gpu(index: int, mib: int | None = 97887, **more: Any) -> Gpu:
    values: dict[str, Any] = {
        "name": "NVIDIA RTX PRO 6000 Blackwell", "memory_used_mib": 0, "mig": None, "holders": (),
    } | more  # fmt: skip
    return Gpu(
        index=index, uuid=f"GPU-{index}", memory_total_mib=mib, compute_capability="12.0",
        driver="580.95", ecc=True, **values,
    )  # fmt: skip


def spec(budget: int = 16, **more: Any) -> ServiceSpec:
    values: dict[str, Any] = {"engine": (("context-length", "2048"),), "extra_args": ()} | more
    return ServiceSpec(
        host="ct200", service="ddtree", model="lab-pair", gpu=1, bind="127.0.0.1", port=30001,
        served_name="lab-pair", target=str(LAB / "target"), target_revision=None,
        drafter=str(LAB / "drafter"), drafter_revision=None, algorithm="DDTREE",
        tree=Tree(budget, 8, None, "tree", False), block_size=16, **values,
    )  # fmt: skip


@pytest.fixture(scope="module")
def published() -> Pair:
    models = CASES / "models"
    sizes = int(50.1 * GIB), int(3.22 * GIB)
    return released(pair(models / "qwen3.6-27b", models / "qwen3.6-27b-dflash", *sizes))


@pytest.fixture
def models(published: Pair) -> Models:
    weights = Weights("/w", None, {}, {}, published.target_bytes)
    return Models(weights, weights, published)


def test_what_fits_passes_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    preflight(ThisMachine("ct200"), spec(), gpu(1), "1000")
    assert capfd.readouterr().err == ""


def test_a_gpu_that_is_too_small_is_refused_by_its_name() -> None:
    with pytest.raises(DdtreeError) as refused:
        preflight(ThisMachine("ct200"), spec(), gpu(1, 1500), None)
    text = str(refused.value)
    assert text.startswith("GPU 1 of host ct200: it does not fit: the weights leave no memory")
    assert "`ddtree plan ct200 --gpu 1` shows" in text


def test_a_gpu_that_does_not_say_its_memory_is_not_refused() -> None:
    preflight(ThisMachine("ct200"), spec(), gpu(1, None), None)


def test_a_budget_beyond_memory_names_what_would_fit(published: Pair) -> None:
    options = ddtree(32)
    division = divide(RTX_PRO_6000, published, options)
    assert division.refusal is not None
    advice = mend(division, published, options)
    assert advice == ("--budget 28 or mem_fraction_static: 0.856 in the model's profile fit")
    wider = replace(options, mem_fraction_static=0.856)
    assert divide(RTX_PRO_6000, published, wider).refusal is None
    assert divide(RTX_PRO_6000, published, replace(options, budget=28)).refusal is None


def test_weights_beyond_memory_have_no_mend_but_another_gpu(published: Pair) -> None:
    division = divide(40 * GIB, published, ddtree(16))
    assert "a GPU with more memory" in mend(division, published, ddtree(16))


def test_the_silent_cap_of_the_state_pool_is_told(published: Pair) -> None:
    options = ddtree(16)
    (told,) = warnings(divide(RTX_PRO_6000, published, options), options)
    assert told == (
        "2 requests are decoded at once, not 48: each takes 5 of 10 recurrent states and 17 for "
        "its nodes; the rest wait"
    )
    asked = ddtree(16, max_running_requests=2)
    assert warnings(divide(RTX_PRO_6000, published, asked), asked) == []


def test_a_context_longer_than_the_cache_is_told(published: Pair) -> None:
    options = ddtree(16, context_length=262144, max_running_requests=1)
    division = divide(RTX_PRO_6000, published, options)
    (told,) = warnings(division, options)
    assert told.startswith(f"the longest request has {division.kv_tokens} tokens, not 262144")


def test_a_share_that_leaves_no_room_for_buffers_is_told(published: Pair) -> None:
    options = ddtree(64, mem_fraction_static=0.999, max_running_requests=4)
    told = warnings(divide(143771 * MIB, published, options), options)
    assert any("expect to run out of memory" in line for line in told)


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (("--max-mamba-cache-size", "20"), "max_mamba_cache_size", 20),
        (("--mamba-full-memory-ratio=2.5",), "mamba_full_memory_ratio", 2.5),
        (("--disable-radix-cache", "--kv-cache-dtype", "fp8_e4m3"), "disable_radix_cache", True),
        (("--kv-cache-dtype", "fp8_e4m3"), "kv_itemsize", 1),
        (("--cuda-graph-max-bs", "4"), "cuda_graph_max_bs_decode", 4),
        (("--disable-cuda-graph",), "decode_graphs", False),
        (("--tp-size", "2"), "uncounted", ("--tp-size",)),
        (("--kv-cache-dtype", "nvfp4"), "uncounted", ("--kv-cache-dtype",)),
        ((), "max_running_requests", 48),
    ],
)
def test_options_are_read_as_the_engine_reads_them(
    words: tuple[str, ...], field: str, value: object
) -> None:
    assert getattr(EngineOptions.of(spec(extra_args=words)), field) == value


def test_an_option_that_is_no_number_is_named() -> None:
    with pytest.raises(UsageError, match="--max-mamba-cache-size is 'many'"):
        EngineOptions.of(spec(extra_args=("--max-mamba-cache-size", "many")))


def test_gpus_alike_share_a_column(models: Models) -> None:
    gpus = [*(gpu(index) for index in (0, 1, 2, 4)), gpu(5, 143771, name="H200"), gpu(6, None)]
    columns = for_gpus(gpus, models, ddtree(16), Wanted(None, None))
    assert [column.title for column in columns] == ["GPU 0-2, 4", "GPU 5"]
    for column in columns:
        assert sum(size for _, size in column.items) == column.capacity
        assert column.refusal is None
    assert dict(columns[0].figures)["largest budget"] == 28
    assert dict(columns[0].figures)["most requests at once"] == 2
    assert dict(columns[1].figures)["most requests at once"] == 8
    hint = "mem_fraction_static: 0.856 in the model's profile gives them to requests"
    assert columns[0].warnings[-1].endswith(hint)
    wider = ddtree(16, mem_fraction_static=0.856)
    (column,) = for_gpus([gpu(0)], models, wider, Wanted(None, None))
    assert dict(column.figures)["largest budget"] == 38
    assert not any("for images" in told for told in column.warnings)


def test_more_requests_than_run_at_once_are_refused(models: Models) -> None:
    asked = ddtree(16, max_running_requests=4)
    (column,) = for_gpus([gpu(0)], models, asked, Wanted(4, None))
    assert column.refusal == "4 requests at once do not fit"
    (column,) = for_gpus([gpu(0)], models, replace(asked, max_running_requests=1), Wanted(1, 9**6))
    assert column.refusal == "1 request of 531441 tokens at once does not fit"


def test_a_gpu_in_use_is_told(models: Models) -> None:
    holder = Holder(4711, "ops", "python", 30000)
    busy = gpu(3, holders=(holder,), memory_used_mib=30000, mig=True)
    (column,) = for_gpus([busy], models, ddtree(16), Wanted(None, None))
    assert any("GPU 3 is in use, 30000 MiB by python (pid 4711)" in w for w in column.warnings)
    assert any("GPU 3 (NVIDIA RTX PRO 6000 Blackwell) is partitioned" in w for w in column.warnings)
