"""Each check passes on a healthy host and fails on its fixture, and on nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddtree_ops_cli.doctor.portable.catalogue import CHECKS
from ddtree_ops_cli.doctor.portable.checks import (
    ADVISORY,
    BLOCKING,
    FAILED,
    NOT_CHECKED,
    blocked,
    judge,
)
from tests.doctor.failing import CASES, failing, healthy, read

BY_ID = {check.id: check for check in CHECKS}
# One cause, two findings: the second names what the first cannot.
TOGETHER = {
    "driver-answers": set(),
    # Nothing here was built for Volta.
    "jit-compile": {"torch-arch", "kernel-images", "kernel-op-gaps"},
    "cuda-major": {"libraries-found"},
    "libraries-found": {"cuda-major"},
    "torch-symbols": {"libraries-found"},
}
# The real sglang-kernel has these gaps on every such GPU, so they come with any case of it.
WITH = {120: {"kernel-op-gaps", "deepgemm"}, 103: {"kernel-op-gaps"}}


def failed(facts: dict[str, Any]) -> set[str]:
    return {f.check.id for f in judge(CHECKS, facts) if f.state == FAILED}


def test_nothing_fails_on_a_healthy_host() -> None:
    assert failed(healthy()) == set()


def test_every_check_has_a_fixture_and_every_fixture_a_check() -> None:
    assert set(CASES) == set(BY_ID)
    assert len(BY_ID) == len(CHECKS) >= 20


@pytest.mark.parametrize("check", sorted(CASES))
def test_a_check_fails_on_its_fixture_and_says_what_it_found(check: str, tmp_path: Path) -> None:
    facts = failing(check, tmp_path)
    found = failed(facts)
    assert check in found
    extra = WITH.get(facts["intent"].get("arch"), set())
    assert found - {check} <= TOGETHER.get(check, set()) | extra
    [finding] = [f for f in judge(CHECKS, facts) if f.check.id == check]
    assert all(len(line) > 10 and "\n" not in line for line in finding.found)


@pytest.mark.parametrize("check", sorted(CASES))
def test_only_a_blocking_check_blocks(check: str, tmp_path: Path) -> None:
    findings = judge(CHECKS, failing(check, tmp_path))
    mine = [f for f in findings if f.check.id == check]
    assert blocked(mine) == (BY_ID[check].severity == BLOCKING)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_check_says_what_it_means_the_mend_and_a_reference(check: Any) -> None:
    assert check.severity in (BLOCKING, ADVISORY)
    for text in (check.title, check.means, check.mend, check.prevents):
        assert len(text.split()) >= 3
    assert check.reference.startswith("https://") or "#" in check.reference


def test_a_fact_that_is_not_known_is_not_a_failure() -> None:
    empty = {
        "intent": {},
        "gpus": {"exit_code": 127, "unknown": "none"},
        "torch": {"unknown": "not here"},
    }
    states = {f.check.id: f.state for f in judge(CHECKS, empty)}
    assert {name for name, state in states.items() if state == FAILED} == {"driver-answers"}
    assert all(state in (FAILED, NOT_CHECKED) for state in states.values())


def test_a_host_that_runs_the_engine_in_containers_alone_is_not_asked_for_its_own_limits() -> None:
    facts = healthy()
    facts["torch"] = {"unknown": "PyTorch is not installed here"}
    facts["limits"]["shm_bytes"] = 0
    states = {f.check.id: f.state for f in judge(CHECKS, facts)}
    assert states["shm-size"] == NOT_CHECKED
    facts["intent"]["container"] = True
    states = {f.check.id: f.state for f in judge(CHECKS, facts)}
    assert states["shm-size"] == FAILED


@pytest.mark.parametrize(
    ("module", "real", "fails"),
    [
        ("580.95.05", "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05", False),
        ("580.95.05", "/usr/lib/x86_64-linux-gnu/libcuda.so.570.10", True),
        ("580.95.05", "/usr/local/cuda/compat/libcuda.so.580.95.05", True),
        ("580.95.05", "/usr/lib/libcuda.so.1", False),
    ],
)
def test_a_libcuda_of_another_version_than_the_driver_is_found(
    module: str, real: str, fails: bool
) -> None:
    facts = healthy()
    facts["driver"]["module"] = module
    facts["driver"]["libcuda"]["real"] = real
    assert ("compat-library" in failed(facts)) == fails


@pytest.mark.parametrize(
    ("driver", "cuda", "fails"),
    [
        ("580.65.06", "13.0", False),
        ("580.65.05", "13.0", True),
        ("575.57.08", "13.0", True),
        ("575.57.08", "12.9", False),
        ("610.1", "13.0", False),
    ],
)
def test_the_driver_is_held_against_the_cuda_major(driver: str, cuda: str, fails: bool) -> None:
    facts = healthy()
    facts["driver"]["module"] = driver
    facts["torch"]["cuda"] = cuda
    assert ("driver-cuda" in failed(facts)) == fails


def test_real_compilers_that_know_the_gpu_pass() -> None:
    facts, recorded = healthy(), read("recorded-compilers.json")
    facts["intent"]["arch"] = 103
    facts["triton"] = recorded["triton-for-sm_103"]
    assert "triton-compile" not in failed(facts)
    facts["intent"]["arch"] = 120
    facts["jit"], facts["ptxas"] = recorded["nvcc-13.0-for-sm_120"], recorded["ptxas-12.8"]
    assert {"jit-compile", "ptxas-override"}.isdisjoint(failed(facts))


def test_a_local_version_satisfies_a_pin_and_another_patch_level_does_not() -> None:
    facts = healthy()
    facts["packages"]["versions"]["torch"] = "2.11.0+cu130"
    assert "pinned-versions" not in failed(facts)
    facts["packages"]["versions"]["torch"] = "2.11.1+cu130"
    assert "pinned-versions" in failed(facts)


def test_a_container_that_was_given_no_gpu_on_purpose_is_not_blamed_for_it() -> None:
    facts = healthy()
    facts["gpus"] = {"exit_code": 6, "unknown": "No devices were found"}
    assert "driver-answers" in failed(facts)
    facts["intent"]["no_gpu"] = "every GPU is in use"
    assert "driver-answers" not in failed(facts)
