"""The servers of a measurement: what they are started with, and what they need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ddtree_ops_cli.services.shapes import GIB
from tools.bench_gpu import shapes
from tools.bench_gpu.services import Device, Model, Service, need

GPU = Device(1, "GPU-1111", "NVIDIA H200", 143_771)
SHAPES = Model("27b", Path("/m/target"), Path("/m/drafter"), True, 8192, 1, 8192, 6)
LAB = Model("lab-pair", Path("/l/target"), Path("/l/drafter"), False, 2048, 4, 16_384)


def option(service: Service, flag: str) -> str | None:
    argv = service.argv
    return argv[argv.index(flag) + 1] if flag in argv else None


def test_arms_differ_in_the_algorithm_alone() -> None:
    linear, tree = Service(SHAPES, None, GPU, 7), Service(SHAPES, 32, GPU, 7)
    assert option(linear, "--speculative-algorithm") == "DFLASH"
    assert option(tree, "--speculative-algorithm") == "DDTREE"
    flags = {word for word in tree.argv if word.startswith("--")} - set(linear.argv)
    assert flags == {
        "--speculative-ddtree-budget",
        "--speculative-ddtree-topk-cap",
        "--speculative-ddtree-mode",
        "--speculative-ddtree-chain-seed",
    }
    assert set(linear.argv) - set(tree.argv) == {"DFLASH"}


@pytest.mark.parametrize(("budget", "seed"), [(16, "5"), (32, "8"), (64, "15"), (4, "4")])
def test_the_seed_reaches_as_far_as_the_forced_path(budget: int, seed: str) -> None:
    assert option(Service(SHAPES, budget, GPU, 7), "--speculative-ddtree-chain-seed") == seed


def test_what_is_not_forced_keeps_the_engines_own_seed() -> None:
    service = Service(LAB, 16, GPU, 7)
    assert option(service, "--speculative-ddtree-chain-seed") is None
    assert option(service, "--load-format") is None
    assert "SGLANG_SIMULATE_ACC_LEN" not in service.environment({}, Path("/site"))


def test_a_service_is_pinned_by_uuid_whatever_the_shell_says() -> None:
    outer = {"CUDA_VISIBLE_DEVICES": "0,1", "PYTHONPATH": "/mine", "HOME": "/root"}
    found = Service(SHAPES, 16, GPU, 7).environment(outer, Path("/site"))
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-1111"
    assert found["PYTHONPATH"] == "/site:/mine"
    assert found["SGLANG_SIMULATE_ACC_LEN"] == "6"
    assert found["HOME"] == "/root"


def test_states_of_the_nodes_are_for_each_request_and_one_of_padding() -> None:
    pair = shapes.pair()
    assert pair.target.recurrence is not None
    state = pair.target.recurrence.state_bytes(4) / GIB
    one = need(Service(SHAPES, 64, GPU, 7), pair)
    three = need(Service(replace(SHAPES, requests=3), 64, GPU, 7), pair)
    linear = need(Service(SHAPES, None, GPU, 7), pair)
    assert one.node_states == pytest.approx(2 * 65 * state)
    assert three.node_states == pytest.approx(4 * 65 * state)
    assert linear.node_states == pytest.approx(2 * 16 * state)
    assert one.total - linear.total == pytest.approx(2 * 49 * state, abs=0.5)


def test_forced_off_the_spine_is_asked_of_the_patch_set() -> None:
    service = Service(SHAPES, 16, GPU, 7, off_spine=True)
    assert service.environment({}, Path("/site"))["DDTREE_SIMULATE_PATH"] == "off-spine"
    assert service.title != Service(SHAPES, 16, GPU, 7).title


def test_titles_tell_all_servers_apart() -> None:
    other = replace(GPU, index=0)
    titles = {
        Service(model, budget, gpu, 7).title
        for model in (SHAPES, LAB)
        for budget in (None, 16, 32)
        for gpu in (GPU, other)
    }
    assert len(titles) == 12
