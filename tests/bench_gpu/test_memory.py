"""What SGLang 0.5.17 prints about memory, read back."""

from __future__ import annotations

import pytest

from ddtree_ops_cli.hosts.gpus import Holder
from tools.bench_gpu.memory import held, printed

LOG = """
[2026-11-29] Load weight end. elapsed=9.1 s, type=Qwen3_5ForCausalLM, avail mem=88.11 GB, mem usage=50.10 GB.
[2026-11-29] Load weight end. elapsed=0.9 s, type=DFlashDraftModel, avail mem=84.89 GB, mem usage=3.22 GB.
[2026-11-29] Mamba Cache is allocated. max_mamba_cache_size: 5, conv_state size: 0.02GB, ssm_state size: 0.84GB intermediate_ssm_state_cache size: 4.78GB intermediate_conv_window_cache size: 0.09GB 
[2026-11-29] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 8192, K size: 0.25 GB, V size: 0.25 GB
[2026-11-29] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 8192, K size: 0.08 GB, V size: 0.08 GB
[2026-11-29] Capture target verify CUDA graph begin. backend=full, avail mem=70.00 GB
[2026-11-29] Capture target verify CUDA graph end. elapsed=30.11 s, mem usage=0.40 GB, avail mem=69.60 GB.
[2026-11-29] Capture draft CUDA graph end. elapsed=3.11 s, mem usage=0.05 GB, avail mem=69.55 GB.
"""  # noqa: E501, W291


def test_target_and_drafter_are_added_up() -> None:
    found = printed(LOG)
    assert found.weights == pytest.approx(53.32)
    assert found.states == pytest.approx(0.86)
    assert found.node_states == pytest.approx(4.87)
    assert found.cache == pytest.approx(0.66)
    assert found.graphs == pytest.approx(0.45)
    assert found.total == pytest.approx(60.16)


def test_what_was_not_printed_is_not_known_and_there_is_no_total() -> None:
    found = printed(LOG.replace("Mamba Cache", "Some cache").replace("conv_state", "x"))
    assert found.states is None
    assert found.total is None


def test_memory_of_all_processes_of_one_server_by_gpu() -> None:
    holders = {
        "GPU-a": (
            Holder(10, None, "a", 1024),
            Holder(11, None, "b", 512),
            Holder(99, None, "c", 7),
        ),
        "GPU-b": (Holder(12, None, "d", None),),
    }
    assert held(holders, frozenset({10, 11, 12})) == {"GPU-a": 1.5}
    assert held(holders, frozenset({1})) == {}


def test_a_difference_of_memory_may_be_negative() -> None:
    """As SGLang prints it where another server ends or starts meanwhile."""
    assert printed(LOG.replace("mem usage=0.40 GB", "mem usage=-3.65 GB")).graphs == (
        pytest.approx(-3.60)
    )
