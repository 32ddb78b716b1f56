"""The toolkit's arithmetic of memory against SGLang's own, the patch set's refusal included."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator
from sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state import (
    resolve_spec_aux_hidden_state_config,
)
from sglang.srt.model_executor.pool_configurator import DefaultPoolConfigurator
from sglang.srt.runtime_context import get_parallel, get_schedule
from sglang.srt.server_args import prepare_server_args, set_global_server_args_for_scheduler
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from ddtree_ops_cli.services.engine_options import EngineOptions
from ddtree_ops_cli.services.memory import divide
from ddtree_ops_cli.services.shapes import GIB, Pair
from tests.services.test_memory import CASES, pair

MODELS = CASES / "models"
TARGET, DRAFTER = MODELS / "qwen3.6-27b", MODELS / "qwen3.6-27b-dflash"


@dataclass(frozen=True)
class Division:
    slots: int
    running: int
    tokens: int


def sglangs(available: float, *flags: str) -> Division | str:
    """What SGLang makes of so many GiB beside the weights, or why it ends."""
    line = ["--device", "cpu", "--model-path", str(TARGET), "--skip-tokenizer-init"]
    line += ["--attention-backend", "triton", "--context-length", "4096", *flags]
    if "--speculative-algorithm" in flags:
        line += ["--speculative-draft-model-path", str(DRAFTER)]
        line += ["--speculative-draft-attention-backend", "triton"]
    args = prepare_server_args(line)
    set_global_server_args_for_scheduler(args)
    model = args.get_model_config()
    algorithm = SpeculativeAlgorithm.from_string(args.speculative_algorithm)
    layers = model.num_hidden_layers
    with get_parallel().override(attn_tp_size=1, attn_tp_rank=0):
        features = resolve_spec_aux_hidden_state_config(
            server_args=args, model_config=model, spec_algorithm=algorithm, is_draft_worker=False
        )
        pools = KVCacheConfigurator(
            device="cpu", gpu_id=0, ps=SimpleNamespace(pp_size=1, attn_dp_size=1), pp_group=None,
            model=None, model_config=model, server_args=args, kv_cache_dtype=torch.bfloat16,
            model_dtype=torch.bfloat16, page_size=1, sliding_window_size=None,
            spec_algorithm=algorithm, is_draft_worker=False, post_capture_kv_active=False,
            spec_aux_config=features, is_hybrid_swa=False, is_hybrid_swa_compress=False,
            use_mla_backend=False, forward_stream=None, req_to_token_pool=None,
            token_to_kv_pool_allocator=None, memory_pool_config=None,
            layer_info=SimpleNamespace(
                start_layer=0, end_layer=layers, num_effective_layers=layers
            ),
        )  # fmt: skip
        try:
            left = pools._handle_max_mamba_cache(available)
            config = DefaultPoolConfigurator(pools).calculate_pool_sizes(int(left * GIB), 1)
            running = pools.resolve_max_num_reqs(config.max_total_num_tokens)
        except (ValueError, RuntimeError) as refused:
            return str(refused)
    return Division(get_schedule().max_mamba_cache_size, running, config.max_total_num_tokens)


def ours(available: float, models: Pair, options: EngineOptions) -> Division | str:
    """Half of what is free is the reserve, the other half is available."""
    half = int(available * GIB)
    division = divide(100 * GIB, models, options, free=2 * half)
    if division.refusal is not None:
        return division.refusal
    return Division(division.slots, division.running, division.kv_tokens)


@pytest.fixture(scope="module")
def models() -> Pair:
    """Weights of no size: the case says what is left beside them."""
    return pair(TARGET, DRAFTER, 0, 0)


LARGEST = re.compile(r"the largest budget that fits is (\d+)")
TREE = ("--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget")


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ((), {}),
        (("--disable-radix-cache", "--max-running-requests", "8"),
         {"disable_radix_cache": True, "max_running_requests": 8}),
        (("--speculative-algorithm", "DFLASH"),
         {"algorithm": "DFLASH", "max_running_requests": 48}),
        ((*TREE, "16"), {"budget": 16, "max_running_requests": 48}),
        ((*TREE, "32", "--max-running-requests", "2"), {"budget": 32, "max_running_requests": 2}),
        ((*TREE, "64", "--mamba-radix-cache-strategy", "extra_buffer"),
         {"budget": 64, "max_running_requests": 48, "mamba_radix_cache_strategy": "extra_buffer"}),
        ((*TREE, "32", "--disable-radix-cache", "--max-running-requests", "3"),
         {"budget": 32, "disable_radix_cache": True, "max_running_requests": 3}),
        ((*TREE, "16", "--max-mamba-cache-size", "20"),
         {"budget": 16, "max_running_requests": 48, "max_mamba_cache_size": 20}),
        ((*TREE, "16", "--mamba-full-memory-ratio", "3.0"),
         {"budget": 16, "max_running_requests": 48, "mamba_full_memory_ratio": 3.0}),
        ((*TREE, "32", "--mamba-ssm-dtype", "bfloat16"),
         {"budget": 32, "max_running_requests": 48, "mamba_ssm_dtype": "bfloat16"}),
    ],
)  # fmt: skip
def test_the_division_is_sglangs_own(
    flags: tuple[str, ...], options: dict[str, object], models: Pair,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("SGLANG_MAMBA_CONV_DTYPE", raising=False)
    monkeypatch.setenv("SGLANG_MAMBA_SSM_DTYPE", str(options.get("mamba_ssm_dtype", "float32")))
    algorithm = str(options.pop("algorithm", "DDTREE" if "budget" in options else "none"))
    asked = EngineOptions(
        algorithm=algorithm, context_length=4096, mem_fraction_static=0.5, **options
    )
    its = models if algorithm != "none" else Pair(models.target, 0, None, 0)
    refused = 0
    for available in (0.3, 2.0, 6.0, 13.0, 20.0, 27.5, 60.0):
        theirs, mine = sglangs(available, *flags), ours(available, its, asked)
        case = f"{available} GiB, {' '.join(flags)}: {theirs} / {mine}"
        if isinstance(theirs, str) or isinstance(mine, str):
            refused += 1
            assert isinstance(theirs, str) and isinstance(mine, str), case  # noqa: PT018
            assert LARGEST.findall(theirs) == LARGEST.findall(mine), case
        else:
            assert (mine.slots, mine.running) == (theirs.slots, theirs.running), case
            assert mine.tokens == pytest.approx(theirs.tokens, abs=2), case
    assert 0 < refused < 7, "some of these amounts are too little, and some are enough"
