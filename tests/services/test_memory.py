"""The division of a GPU's memory, against what SGLang 0.5.17 logged and for known shapes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ddtree_ops_cli.services.engine_options import EngineOptions
from ddtree_ops_cli.services.memory import (
    Division,
    divide,
    largest_budget,
    largest_concurrency,
)
from ddtree_ops_cli.services.shapes import GIB, MIB, Pair, Uncounted, drafter_shape, target_shape

CASES = Path(__file__).parent / "cases"
LAB = Path(__file__).parents[2] / "ddtree_ops_cli/lab/weights"
RTX_PRO_6000 = 97887 * MIB
H200 = 143771 * MIB
QWEN_GIB, ITS_DRAFTER_GIB = 50.1, 3.22


def config(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def pair(target: Path, drafter: Path | None, target_bytes: int, drafter_bytes: int) -> Pair:
    return Pair(
        target_shape(config(target), where="target"),
        target_bytes,
        None if drafter is None else drafter_shape(config(drafter), where="drafter"),
        drafter_bytes,
    )


@pytest.fixture(scope="module")
def lab() -> Pair:
    return pair(LAB / "target", LAB / "drafter", 21042632, 4331464)


@pytest.fixture(scope="module")
def qwen() -> Pair:
    """The text class, as `--load-format dummy` was measured with."""
    models = CASES / "models"
    sizes = int(QWEN_GIB * GIB), int(ITS_DRAFTER_GIB * GIB)
    return pair(models / "qwen3.6-27b", models / "qwen3.6-27b-dflash", *sizes)


@pytest.fixture(scope="module")
def dense() -> Pair:
    """Attention alone: Qwen3-8B's shape (Qwen/Qwen3-8B, config.json)."""
    text = {
        "architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936, "hidden_size": 4096,
        "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128,
    }  # fmt: skip
    its_drafter = text | {
        "num_hidden_layers": 5, "intermediate_size": 12288, "block_size": 16,
        "dflash_config": {"target_layer_ids": [1, 9, 17, 25, 33]},
    }  # fmt: skip
    return Pair(
        target_shape(text, where="target"),
        int(15.3 * GIB),
        drafter_shape(its_drafter, where="drafter"),
        int(2 * GIB),
    )


def released(text_only: Pair) -> Pair:
    """As Qwen3.6-27B is published: with an image encoder, under the multimodal class."""
    shape = replace(
        text_only.target, architecture="Qwen3_5ForConditionalGeneration", vision=(24, 1152)
    )
    return replace(text_only, target=shape, target_bytes=int(55.6e9))


def ddtree(budget: int, **more: Any) -> EngineOptions:
    options = {"context_length": 32768, "max_running_requests": 48, **more}
    return EngineOptions(algorithm="DDTREE", budget=budget, **options)


def parts(division: Division) -> int:
    return (
        division.runtime + division.target_weights + division.drafter_weights
        + division.recurrent_states + division.verify_states + division.target_kv
        + division.drafter_kv + division.reserve + division.unused
    )  # fmt: skip


def test_a_state_of_qwen_is_what_was_measured(qwen: Pair) -> None:
    recurrence = qwen.target.recurrence
    assert recurrence is not None
    matrices = 48 * 48 * 128 * 128 * 4
    assert matrices == 150_994_944, "151 MB a node"
    windows = 48 * (2 * 16 * 128 + 48 * 128) * 3 * 2
    assert recurrence.state_bytes(4) == matrices + windows
    assert recurrence.state_bytes(2) == matrices // 2 + windows


def test_keys_and_values_of_a_token(qwen: Pair, dense: Pair) -> None:
    assert qwen.target.attention.bytes_per_token(2) == 16 * 4 * (256 + 256) * 2
    assert qwen.drafter is not None
    assert qwen.drafter.attention.bytes_per_token(2) == 5 * 8 * (128 + 128) * 2
    assert dense.target.attention.bytes_per_token(2) == 36 * 8 * (128 + 128) * 2


def test_the_parameters_of_a_drafter_are_those_of_its_file(lab: Pair, qwen: Pair) -> None:
    import safetensors.numpy

    weights = (LAB / "drafter/model.safetensors").read_bytes()
    tensors = dict(safetensors.deserialize(weights))  # type: ignore[no-untyped-call]
    assert lab.drafter is not None
    assert qwen.drafter is not None
    assert lab.drafter.parameters * 2 == sum(len(tensor["data"]) for tensor in tensors.values())
    assert qwen.drafter.parameters * 2 / GIB == pytest.approx(ITS_DRAFTER_GIB, abs=0.01)


@pytest.mark.parametrize("run", json.loads((CASES / "sglang-0.5.17-memory.json").read_text()))
def test_the_division_is_what_sglang_logged(run: dict[str, Any], lab: Pair) -> None:
    """Its log rounds to 0.01 GB, and some 0.05 GB go between the weights and the pools."""
    options = EngineOptions(**run["options"])
    division = divide(H200, lab, options, free=int(run["free_gib"] * GIB))
    assert division.refusal is None
    assert division.running == run["max_running_requests"]
    assert division.fraction == run["fraction"]
    assert division.slots == pytest.approx(run["max_mamba_cache_size"], rel=0.003)
    assert division.kv_tokens == pytest.approx(run["max_total_num_tokens"], rel=0.003)
    for name, gib in run["allocated_gib"].items():
        assert getattr(division, name) / GIB == pytest.approx(gib, rel=0.005, abs=0.01), name


@pytest.mark.parametrize("capacity", [RTX_PRO_6000, H200, 80 * GIB, 24 * GIB])
@pytest.mark.parametrize("budget", [1, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("which", ["lab", "qwen", "dense"])
def test_the_parts_are_the_whole(
    which: str, budget: int, capacity: int, request: pytest.FixtureRequest
) -> None:
    division = divide(capacity, request.getfixturevalue(which), ddtree(budget))
    if division.refusal is None:
        assert parts(division) == capacity
        assert division.running > 0
        assert division.kv_tokens > 0


@pytest.mark.parametrize("radix", [True, False])
def test_a_larger_budget_never_allows_more(qwen: Pair, radix: bool) -> None:
    for requests in (1, 4, 48):
        options = ddtree(1, max_running_requests=requests, disable_radix_cache=not radix)
        found = [divide(H200, qwen, replace(options, budget=budget)) for budget in range(1, 257)]
        for smaller, larger in pairwise(found):
            assert larger.slots <= smaller.slots
            assert larger.running <= smaller.running
            assert smaller.refusal is None or larger.refusal is not None
        at_once = [
            largest_concurrency(H200, qwen, replace(options, budget=budget)) or 0
            for budget in range(1, 257, 16)
        ]
        assert at_once == sorted(at_once, reverse=True)


@pytest.mark.parametrize(("requests", "context"), [(1, 1), (2, 1), (1, 131072), (4, 8192)])
def test_the_largest_budget_fits_and_none_above_it(qwen: Pair, requests: int, context: int) -> None:
    options = ddtree(16)
    best = largest_budget(H200, qwen, options, requests=requests, context=context)
    assert best is not None

    def fits(budget: int) -> bool:
        return divide(H200, qwen, replace(options, budget=budget)).holds(requests, context)

    assert fits(best)
    assert not any(fits(budget) for budget in range(best + 1, 257))


def test_the_most_requests_fit_and_one_more_does_not(qwen: Pair) -> None:
    options = ddtree(16)
    most = largest_concurrency(H200, qwen, options, context=8192)
    assert most is not None
    assert divide(H200, qwen, replace(options, max_running_requests=most)).holds(most, 8192)
    more = replace(options, max_running_requests=most + 1)
    assert not divide(H200, qwen, more).holds(most + 1, 8192)


def test_the_pool_of_states_caps_requests_on_the_first_server(qwen: Pair) -> None:
    """96 GB, SGLang's defaults: the published checkpoint runs two requests at budget 16."""
    published = released(qwen)
    division = divide(RTX_PRO_6000, published, ddtree(16))
    assert (division.running, division.slots, division.slots_per_request) == (2, 10, 5)
    assert division.capped_by_states
    assert division.recurrent_states == (10 + 1) * division.state
    assert division.verify_states == (2 + 1) * 17 * division.state
    refused = divide(RTX_PRO_6000, published, ddtree(32))
    assert refused.refusal is not None
    assert "a budget of 32 keeps 33 recurrent states of 147 MiB" in refused.refusal
    assert largest_budget(RTX_PRO_6000, published, ddtree(32)) == 28
    assert "the largest budget that fits is 28" in refused.refusal


def test_attention_alone_has_no_states_and_is_bound_by_its_keys(dense: Pair) -> None:
    division = divide(RTX_PRO_6000, dense, ddtree(64, max_running_requests=None))
    assert (division.state, division.verify_states, division.recurrent_states) == (0, 0, 0)
    assert not division.capped_by_states
    alone = ddtree(16, max_running_requests=1)
    assert largest_budget(RTX_PRO_6000, dense, alone) == 256
    # Of 48 at once the probabilities and logits of every node must have room, too.
    best = largest_budget(RTX_PRO_6000, dense, ddtree(16))
    assert best is not None
    assert best < 256


@pytest.mark.parametrize(
    ("options", "slots"),
    [
        ({}, 5),
        ({"disable_overlap_schedule": True}, 3),
        ({"disable_radix_cache": True}, 1),
        ({"mamba_radix_cache_strategy": "extra_buffer"}, 5),
        ({"mamba_radix_cache_strategy": "extra_buffer_lazy"}, 4),
        ({"mamba_radix_cache_strategy": "extra_buffer", "disable_overlap_schedule": True}, 4),
        ({"mamba_radix_cache_strategy": "no_buffer"}, 3),
    ],
)
def test_slots_that_a_request_takes(qwen: Pair, options: dict[str, Any], slots: int) -> None:
    assert ddtree(8, **options).slots_per_request(qwen.target) == slots


def test_only_the_tree_saves_states_of_the_text_class_aside(qwen: Pair) -> None:
    linear = EngineOptions(algorithm="DFLASH")
    assert linear.slots_per_request(qwen.target) == 3
    assert linear.slots_per_request(released(qwen).target) == 5
    assert ddtree(8).slots_per_request(released(qwen).target) == 5


def test_weights_larger_than_the_gpu_are_refused(qwen: Pair) -> None:
    for budget in (1, 64):
        division = divide(24 * GIB, qwen, ddtree(budget))
        assert division.refusal == "the weights leave no memory for caches"
    assert largest_budget(24 * GIB, qwen, ddtree(16)) is None
    assert largest_concurrency(24 * GIB, qwen, ddtree(16)) is None


def test_a_budget_that_the_patch_set_does_not_take(lab: Pair) -> None:
    assert divide(H200, lab, ddtree(256)).refusal is None
    assert divide(H200, lab, ddtree(257)).refusal == (
        "the patch set takes budgets up to 256, not 257"
    )


def test_buffers_beyond_the_reserve_do_not_fit(qwen: Pair) -> None:
    options = ddtree(64, mem_fraction_static=0.999, max_running_requests=4)
    division = divide(H200, qwen, options)
    assert division.refusal is None
    assert sum(size for _, size in division.buffers) > division.reserve
    assert not division.holds(1, 1)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"kv_lora_rank": 512}, "multi-head latent attention"),
        ({"mamba_d_state": 128}, "recurrent layers of this kind"),
    ],
)
def test_other_families_are_not_guessed_at(change: dict[str, Any], what: str) -> None:
    with pytest.raises(Uncounted, match=what):
        target_shape(config(LAB / "target") | change, where="target")


@pytest.mark.parametrize("value", [None, 0, -1, "4", 1.5, True])
def test_a_config_without_its_numbers_is_refused_by_name(value: object) -> None:
    text = config(LAB / "target") | {"hidden_size": value}
    with pytest.raises(Exception, match=r"ct200:/w/config.json: hidden_size is .*whole number"):
        target_shape(text, where="ct200:/w/config.json")
