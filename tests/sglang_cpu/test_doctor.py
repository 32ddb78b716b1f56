"""The doctor's trials where PyTorch, Triton and SGLang are real; no GPU is needed for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtree_ops_cli.doctor.portable import packages, smoke
from ddtree_ops_cli.doctor.portable.catalogue import CHECKS
from ddtree_ops_cli.doctor.portable.checks import Finding, judge
from ddtree_ops_cli.doctor.portable.gather import gather


def found(facts: dict[str, object], check: str) -> Finding:
    return next(one for one in judge(CHECKS, facts) if one.check.id == check)


@pytest.mark.parametrize("arch", [90, 120])
def test_triton_compiles_for_a_gpu_that_is_not_here(arch: int) -> None:
    built = smoke.triton(arch)
    assert "error" not in built, built
    assert built["cubin_bytes"] > 1000


def test_a_ptxas_that_is_too_old_is_found_by_compiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "ptxas"
    refusal = "ptxas fatal : Value 'sm_120a' is not defined for option 'gpu-name'"
    old.write_text(
        "#!/bin/sh\n"
        'case "$*" in *--version*) echo "release 12.4, V12.4.99"; exit 0;; esac\n'
        f'echo "{refusal}" >&2; exit 1\n'
    )
    old.chmod(0o755)
    for name in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        monkeypatch.setenv(name, str(old))
    facts = {"intent": {"arch": 120}, "triton": smoke.triton(120)}
    finding = found(facts, "triton-compile")
    assert finding.state == "failed"
    assert "sm_120" in finding.found[0]


def test_a_torch_that_sglang_does_not_pin_is_found() -> None:
    facts = gather({"arch": 120}, quick=True)
    assert facts["pins"]["sglang"] == "0.5.17"
    torch = packages.torch()["version"]
    [line] = [line for line in found(facts, "pinned-versions").found if " torch " in line]
    assert line == f"SGLang 0.5.17 pins torch 2.11.0; {torch} is installed"
