"""Which starts are refused, and that each refusal names what to change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.server_args import ServerArgs, prepare_server_args
from sglang.srt.speculative.ddtree.arguments import refuse_states_beyond_memory
from sglang.srt.speculative.ddtree.patched import refuse_half_patched
from sglang.srt.speculative.ddtree.patched_files import PATCHED

from tests.sglang_cpu.server import argv

Pair = tuple[Path, Path]

SHADOW = ("--speculative-ddtree-mode", "shadow-linear", "--speculative-ddtree-log-steps", "steps")


def resolved(pair: Pair, *flags: str, algorithm: str = "DDTREE") -> ServerArgs:
    line = argv(*pair, "--speculative-algorithm", algorithm, *flags, port=30000)
    return prepare_server_args(line[3:])


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), (16, 8, 4, 17)),
        (("--speculative-ddtree-budget", "64"), (64, 8, 15, 65)),
        (("--speculative-ddtree-budget", "8"), (8, 8, 2, 9)),
        (("--speculative-ddtree-topk-cap", "3"), (16, 3, 4, 17)),
        (("--speculative-ddtree-chain-seed", "0"), (16, 8, 0, 17)),
        (("--speculative-ddtree-chain-seed", "99"), (16, 8, 15, 17)),
        (("--speculative-num-draft-tokens", "17"), (16, 8, 4, 17)),
    ],
)
def test_the_tree_that_the_flags_describe(
    hybrid: Pair, flags: tuple[str, ...], expected: tuple[int, ...]
) -> None:
    args = resolved(hybrid, *flags)
    assert expected == (
        args.speculative_ddtree_budget,
        args.speculative_ddtree_topk_cap,
        args.speculative_ddtree_chain_seed,
        args.speculative_num_draft_tokens,
    )
    assert args.speculative_dflash_block_size == 16
    assert args.speculative_eagle_topk > 1, "a chain's conv windows would overlap"
    assert args.speculative_ddtree_state == "exact"


@pytest.mark.parametrize(
    ("flags", "strategy"),
    [
        ((), "extra_buffer"),
        (SHADOW, "extra_buffer"),
        (("--mamba-radix-cache-strategy", "extra_buffer"), "extra_buffer"),
        (("--disable-overlap-schedule",), "auto"),
        (("--disable-radix-cache",), "auto"),
    ],
)
def test_states_for_reuse_are_kept_aside_where_steps_overlap(
    hybrid: Pair, flags: tuple[str, ...], strategy: str
) -> None:
    assert resolved(hybrid, *flags).mamba_radix_cache_strategy == strategy


def test_states_that_a_step_still_writes_are_never_saved(hybrid: Pair, dense: Pair) -> None:
    no_buffer = ("--mamba-radix-cache-strategy", "no_buffer")
    with pytest.raises(ValueError, match="no_buffer saves states that overlap") as refusal:
        resolved(hybrid, *no_buffer)
    assert "\n" not in str(refusal.value)
    alone = resolved(hybrid, *no_buffer, "--disable-overlap-schedule")
    assert alone.mamba_radix_cache_strategy == "no_buffer"
    assert resolved(dense).mamba_radix_cache_strategy == "auto"


def test_shadow_mode_verifies_the_block_as_a_chain(hybrid: Pair) -> None:
    args = resolved(hybrid, *SHADOW)
    assert args.speculative_num_draft_tokens == 16
    assert args.speculative_eagle_topk == 1


def test_linear_dflash_is_as_it_was(hybrid: Pair) -> None:
    args = resolved(hybrid, algorithm="DFLASH")
    assert args.speculative_num_draft_tokens == 16
    assert args.speculative_eagle_topk == 1
    assert args.speculative_ddtree_budget is None
    assert args.speculative_ddtree_state is None


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--speculative-ddtree-budget", "0"), "--speculative-ddtree-budget must be 1 to 256"),
        (("--speculative-ddtree-budget", "-3"), "--speculative-ddtree-budget must be 1 to 256"),
        (("--speculative-ddtree-budget", "257"), "--speculative-ddtree-budget must be 1 to 256"),
        (("--speculative-ddtree-topk-cap", "0"), "--speculative-ddtree-topk-cap must be at least"),
        (("--speculative-ddtree-topk-cap", "19"), "the largest is 18"),
        (("--speculative-ddtree-topk-cap", "1"), "more than the 15 nodes"),
        (("--speculative-ddtree-chain-seed", "-1"), "--speculative-ddtree-chain-seed"),
        (("--speculative-num-draft-tokens", "16"), "set --speculative-ddtree-budget"),
        (("--speculative-dflash-block-size", "8"), "differs from the drafter's block_size 16"),
        (SHADOW[:2], "add --speculative-ddtree-log-steps FILE"),
        (("--page-size", "16"), "set --page-size 1"),
        (("--attention-backend", "torch_native"), "set --attention-backend triton"),
        (("--decode-attention-backend", "torch_native"), "set --attention-backend triton"),
        (("--enable-two-batch-overlap",), "--enable-two-batch-overlap"),
        (("--disaggregation-mode", "decode"), "--disaggregation-mode decode"),
    ],
)
def test_impossible_settings_are_refused_by_name(
    dense: Pair, flags: tuple[str, ...], named: str
) -> None:
    with pytest.raises(ValueError, match=named) as refusal:
        resolved(dense, *flags)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("algorithm", ["DFLASH", None])
@pytest.mark.parametrize(
    "flags",
    [
        ("--speculative-ddtree-budget", "16"),
        ("--speculative-ddtree-topk-cap", "8"),
        ("--speculative-ddtree-chain-seed", "0"),
        ("--speculative-ddtree-mode", "shadow-linear"),
        ("--speculative-ddtree-allow-hybrid-unsafe",),
        ("--speculative-ddtree-log-steps", "steps.jsonl"),
    ],
    ids=lambda flags: flags[0],
)
def test_a_flag_of_ddtree_without_ddtree_is_refused_by_name(
    dense: Pair, flags: tuple[str, ...], algorithm: str | None
) -> None:
    if algorithm is None:
        line = argv(dense[0], None, *flags)
    else:
        line = argv(*dense, "--speculative-algorithm", algorithm, *flags)
    with pytest.raises(ValueError, match=f"^{flags[0]} belongs to --speculative-algorithm DDTREE"):
        prepare_server_args(line[3:])


def test_the_algorithm_may_be_written_small(dense: Pair) -> None:
    args = resolved(dense, "--speculative-ddtree-budget", "8", algorithm="ddtree")
    assert args.speculative_ddtree_budget == 8


@pytest.fixture
def patched_site(engine: Path, tmp_path: Path) -> Path:
    for path in PATCHED:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(engine / path, tmp_path / path)
    return tmp_path


@pytest.mark.parametrize("path", PATCHED)
def test_a_half_patched_sglang_is_refused_by_file(patched_site: Path, path: str) -> None:
    refuse_half_patched(patched_site)
    place = patched_site / path
    place.write_bytes(place.read_bytes() + b"\n")
    for spoil in (lambda: None, place.unlink):
        spoil()
        with pytest.raises(ValueError, match=r"^SGLang is half-patched: ") as refusal:
            refuse_half_patched(patched_site)
        assert [named for named in PATCHED if named in str(refusal.value)] == [path]


def test_a_start_looks_whether_sglang_is_half_patched(
    dense: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PATCHED, "sglang/srt/server_args.py", "another")
    with pytest.raises(ValueError, match=r"half-patched: .*sglang/srt/server_args\.py;"):
        resolved(dense)
    resolved(dense, algorithm="DFLASH")


def drafter_with(pair: Pair, folder: Path, change: Callable[[dict[str, Any]], None]) -> Pair:
    target, drafter = pair
    copy = folder / "drafter"
    shutil.copytree(drafter, copy)
    config = json.loads((copy / "config.json").read_text())
    change(config)
    (copy / "config.json").write_text(json.dumps(config))
    return target, copy


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"vocab_size": 300}, "a vocabulary of 300"),
        ({"hidden_size": 32}, "a hidden size of 32"),
        ({"num_target_layers": 64}, "num_target_layers 64"),
        ({"dflash_config": {"target_layer_ids": [0, 9], "mask_token_id": 319}}, "target_layer_ids"),
        ({"block_size": 1}, "leaves nothing to draft"),
    ],
)
def test_a_drafter_of_another_target_is_refused(
    hybrid: Pair, tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    pair = drafter_with(hybrid, tmp_path, lambda config: config.update(change))
    with pytest.raises(ValueError, match=named):
        resolved(pair)


def test_unknown_recurrent_layers_need_the_unsafe_flag(
    hybrid: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No other hybrid family is small enough to make up here; SGLang's own answer to "is this
    # gated DeltaNet?" decides.
    from sglang.srt.configs import hybrid_arch

    monkeypatch.setattr(hybrid_arch, "hybrid_gdn_config", lambda _config: None)
    monkeypatch.setattr(hybrid_arch, "mambaish_config", lambda config: config.hf_config)
    with pytest.raises(ValueError, match="--speculative-ddtree-allow-hybrid-unsafe"):
        resolved(hybrid)
    args = resolved(hybrid, "--speculative-ddtree-allow-hybrid-unsafe")
    assert args.speculative_ddtree_state == "unsafe"


def states(budget: int, *, requests: int, radix: bool = True) -> None:
    """As SGLang sizes its pools on 30 GiB beside the weights, states of 0.15 GiB (27B, float32)."""
    available, state, per_request = 30.0, 0.15, 5 if radix else 1
    share = available * 0.9 / 1.9 if radix else available
    nodes = budget + 1
    if radix:
        slots = int((share - state * (1 + nodes)) // (state * (1 + nodes / per_request)))
    else:
        slots = requests
    running = min(requests, slots // per_request)
    refuse_states_beyond_memory(
        SimpleNamespace(
            speculative_ddtree_budget=budget,
            speculative_ddtree_mode="tree",
            disable_radix_cache=not radix,
            max_mamba_cache_size=None,
            mamba_full_memory_ratio=0.9,
        ),
        available=available,
        left=available - state * (running + 1) * nodes,
        state=state,
        slots=slots,
        slots_per_request=per_request,
    )


@pytest.mark.parametrize("radix", [True, False])
def test_a_budget_whose_states_do_not_fit_is_refused_with_the_largest_that_does(
    radix: bool,
) -> None:
    states(16, requests=1, radix=radix)
    with pytest.raises(ValueError, match="the largest budget that fits is") as refusal:
        states(200, requests=1, radix=radix)
    largest = int(str(refusal.value).split("fits is ")[1].split(",")[0])
    states(largest, requests=1, radix=radix)
    with pytest.raises(ValueError, match="--speculative-ddtree-budget"):
        states(largest + 2, requests=1, radix=radix)


def test_too_many_requests_at_once_are_refused_too() -> None:
    with pytest.raises(ValueError, match="with --max-running-requests 1 the largest") as refusal:
        states(16, requests=48, radix=False)
    largest = int(str(refusal.value).split("fits is ")[1].split(";")[0])
    assert largest > 16
    states(largest, requests=1, radix=False)
    with pytest.raises(ValueError, match="lower --speculative-ddtree-budget"):
        states(largest + 1, requests=1, radix=False)
