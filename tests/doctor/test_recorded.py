"""The doctor's own record of a real GPU host: two H200, SGLang 0.5.17 with the patch set on it.

SGLang's packages were put into a folder before the host's own, without the libraries of sgl_kernel
for other GPUs than these (FlashAttention-3, FlashMLA and the variant for sm_100 among them).
"""

from __future__ import annotations

from typing import Any

import pytest

from ddtree_ops_cli.doctor.portable.catalogue import CHECKS
from ddtree_ops_cli.doctor.portable.checks import FAILED, NOT_CHECKED, PASSED, judge
from tests.doctor.failing import read

WRONG = {
    "pinned-versions": ("numba", "soundfile", "timm"),
    "package-twice": (
        *("annotated-doc", "cloudpickle", "huggingface-hub", "tokenizers", "transformers"),
    ),
    "clock": ("nothing keeps the clock right",),
}
"""What is wrong with that host, by check: a folder before an environment, and no time service."""
UNKNOWN = {"lock", "gpu-pinned", "not-root"}
"""Nothing was said about a lock or a GPU, and it was no container."""


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return read("recorded-h200.json")


def test_every_fact_was_gathered(facts: dict[str, Any]) -> None:
    unknown = {name for name, fact in facts.items() if isinstance(fact, dict) and "unknown" in fact}
    assert unknown == set()
    assert facts["kernels"]["libraries"]["sm90/common_ops.abi3.so"]["missing"] == 0
    assert facts["pins"]["sglang"] == "0.5.17"
    assert facts["patch_set"]["modules"]


def test_it_passes_everything_but_what_is_wrong_there(facts: dict[str, Any]) -> None:
    findings = {finding.check.id: finding for finding in judge(CHECKS, facts)}
    assert {name for name, one in findings.items() if one.state == FAILED} == set(WRONG)
    assert {name for name, one in findings.items() if one.state == NOT_CHECKED} == UNKNOWN
    assert sum(one.state == PASSED for one in findings.values()) == len(CHECKS) - len(WRONG) - len(
        UNKNOWN
    )
    for name, parts in WRONG.items():
        found = findings[name].found
        assert len(found) == len(parts)
        assert all(any(part in line for line in found) for part in parts), found
