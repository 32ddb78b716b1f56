"""What `python -m tools.bench_gpu` starts is what the patched SGLang understands."""

from __future__ import annotations

import pytest
from sglang.srt.server_args import prepare_server_args

from tools.bench_gpu.services import Device, Model, Service
from tools.bench_gpu.shapes import write_pair

GPU = Device(0, "GPU-0", "NVIDIA H200", 143_771)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Model:
    target, drafter = write_pair(tmp_path_factory.mktemp("shapes"))
    return Model("27b", target, drafter, True, 8192, 1, 8192, accept_length=6)


@pytest.mark.parametrize("budget", [None, 16, 32, 64])
def test_servers_of_the_27b_shapes(shapes: Model, budget: int | None) -> None:
    service = Service(shapes, budget, GPU, 31_700)
    words = list(service.argv[3:])
    args = prepare_server_args([*words, "--device", "cpu", "--disable-decode-cuda-graph"])
    assert args.speculative_algorithm == ("DFLASH" if budget is None else "DDTREE")
    assert args.speculative_num_draft_tokens == service.rows
    assert args.load_format == "dummy"
    assert args.max_running_requests == 1
    assert args.attention_backend == args.speculative_draft_attention_backend == "triton"
    assert not args.disable_overlap_schedule
    if budget is not None:
        assert args.speculative_ddtree_state == "exact"
        assert args.speculative_ddtree_chain_seed >= 5, "shorter than the path that is forced"
