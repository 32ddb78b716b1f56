"""nvidia-smi's CSV and its failures, taken apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddtree_ops_cli.errors import DdtreeError
from ddtree_ops_cli.hosts.gpus import Holder, failure, parse, parse_holders

FAILURES = json.loads((Path(__file__).parent / "cases/nvidia-smi-failures.json").read_text())


RECORDED = json.loads((Path(__file__).parent / "cases/h200.json").read_text())
"""Of a real nvidia-smi."""


def test_the_words_of_a_real_host_are_understood() -> None:
    holders = parse_holders(RECORDED["holders"], RECORDED["owners"])
    first, second = parse(RECORDED["gpus"], holders)
    assert (first.name, first.driver, first.compute_capability) == (
        "NVIDIA H200",
        "580.159.04",
        "9.0",
    )
    assert (first.memory_total_mib, first.mig, first.ecc) == (143771, False, True)
    assert [(h.name, h.user, h.memory_mib) for h in first.holders] == [
        ("python3", None, 520),
        ("python3", "root", 1634),
    ]
    assert (second.index, second.holders) == (1, ())


@pytest.mark.parametrize("case", RECORDED["failures"], ids=lambda case: str(case["exit_code"]))
def test_the_failures_of_a_real_nvidia_smi_are_named(case: dict[str, object]) -> None:
    found = failure(int(str(case["exit_code"])), str(case["text"]))
    assert found.mend
    assert " ".join(str(case["text"]).split()) in found.what


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: str(case["exit_code"]))
def test_each_failure_is_named_with_its_mend(case: dict[str, object]) -> None:
    found = failure(int(str(case["exit_code"])), str(case["text"]))
    assert found.what.startswith(str(case["what"]))
    assert found.mend


def test_an_unknown_failure_keeps_its_words() -> None:
    assert failure(255, "odd\nthing\n").what == "nvidia-smi failed with exit code 255: odd thing"


def test_a_gpu_that_says_little() -> None:
    (gpu,) = parse("0, GPU-a, [N/A], [Unknown Error], [N/A], 580.95, [N/A], [N/A], NVIDIA GB10", {})
    assert gpu.memory_total_mib is gpu.memory_used_mib is gpu.compute_capability is None
    assert gpu.mig is gpu.ecc is None
    assert gpu.name == "NVIDIA GB10"


def test_the_names_of_processes_may_contain_commas_and_quotes() -> None:
    text = 'GPU-a, 7, 12, python -c "x, y"\nGPU-b, 8, [N/A], [Not Found]\nGPU-a, 9, 3, z\n'
    found = parse_holders(text, "    7 ops\n   9 a.long-name\n")
    assert found == {
        "GPU-a": (Holder(7, "ops", 'python -c "x, y"', 12), Holder(9, "a.long-name", "z", 3)),
        "GPU-b": (Holder(8, None, "[Not Found]", None),),
    }


@pytest.mark.parametrize("text", ["", "\n", "No running processes found"])
def test_nothing_runs(text: str) -> None:
    assert parse_holders(text, "") == {}


@pytest.mark.parametrize("text", ["0, GPU-a", "x, GPU-a, 1, 1, 12.0, 580, [N/A], [N/A], name"])
def test_what_was_not_asked_for_is_an_error(text: str) -> None:
    with pytest.raises(DdtreeError, match="nvidia-smi answers"):
        parse(text, {})
