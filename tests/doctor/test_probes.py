"""What the probes make of the commands and files that they find."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from ddtree_ops_cli.doctor.portable import asking, gather, libraries, machine, packages, smoke
from ddtree_ops_cli.patchset.apply import apply
from tests.doctor.failing import ARTEFACTS, Everything
from tests.patchset.sample import SPEC, WORKER, write_patches, write_tree

H200 = json.loads((Path(__file__).parents[1] / "hosts/cases/h200.json").read_text())


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name in ("CUDA_HOME", "CUDA_PATH", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        monkeypatch.delenv(name, raising=False)
    return folder


def put(folder: Path, name: str, script: str) -> Path:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def test_a_command_that_hangs_is_killed_with_what_it_started() -> None:
    began = time.monotonic()
    answer = asking.ask(["sh", "-c", "sleep 60 & sleep 60"], timeout_s=0.3)
    assert time.monotonic() - began < 20
    assert (answer.exit_code, answer.said) == (asking.LATE, "did not end within 0.3 s")


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("raise SystemExit('no such thing')", "no such thing"),
        ("import os; os.kill(os.getpid(), 11)", "it was ended by signal 11"),
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("print('[1]')", "it said nothing (exit code 0)"),
    ],
)
def test_a_child_that_dies_or_says_nothing_is_a_fact(program: str, says: str) -> None:
    assert asking.ask_python(program) == {"unknown": says}


def test_the_gpus_are_those_that_nvidia_smi_lists(commands: Path) -> None:
    row = (
        "0, GPU-a, NVIDIA H200, 9.0, 580.159.04, 143771 MiB, Enabled, 700.00 W, 700.00 W, "
        "700.00 W, 5, 16"
    )
    put(commands, "nvidia-smi", f'[ $# = 0 ] && echo "CUDA Version: 13.0" || echo "{row}"')
    found = machine.gpus()
    assert found["cuda"] == "13.0"
    [card] = found["cards"]
    assert (card["uuid"], card["compute_cap"], card["power.limit"]) == ("GPU-a", "9.0", "700.00 W")


@pytest.mark.parametrize("failure", H200["failures"], ids=lambda one: str(one["exit_code"]))
def test_a_failing_nvidia_smi_is_kept_with_its_words(
    commands: Path, failure: dict[str, object]
) -> None:
    put(commands, "nvidia-smi", f"cat <<'X'\n{failure['text']}X\nexit {failure['exit_code']}")
    found = machine.gpus()
    assert found["exit_code"] == failure["exit_code"]
    assert found["unknown"] == " ".join(str(failure["text"]).split())


def test_xids_are_found_in_the_kernel_log(commands: Path) -> None:
    xid = "[  9.1] NVRM: Xid (PCI:0000:81:00): 79, GPU has fallen off the bus."
    put(commands, "dmesg", f'echo "[ 0.8] NVRM: loading NVIDIA UNIX Open"; echo "{xid}"')
    assert machine.kernel_log() == {"xid": [xid]}
    put(commands, "dmesg", "echo 'Operation not permitted' >&2; exit 1")
    put(commands, "journalctl", f'echo "{xid}"')
    assert machine.kernel_log() == {"xid": [xid]}


def test_a_secret_in_the_environment_is_no_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_API_KEY", "hidden")
    monkeypatch.setenv("SGLANG_ENABLE_JIT_DEEPGEMM", "0")
    monkeypatch.setenv("HF_TOKEN", "hidden")
    found = gather._environment()
    assert found["SGLANG_ENABLE_JIT_DEEPGEMM"] == "0"
    assert "hidden" not in found.values()


def test_an_nvcc_that_does_not_know_the_gpu_is_kept_with_its_words(commands: Path) -> None:
    put(
        commands,
        "nvcc",
        '[ "$1" = --version ] && echo "Cuda compilation tools, release 12.4, V12.4.99" && exit 0\n'
        "echo \"nvcc fatal   : Unsupported gpu architecture 'compute_120'\" >&2; exit 1",
    )
    found = smoke.jit(120)
    assert (found["nvcc"], found["version"]) == (str(commands / "nvcc"), "12.4")
    assert found["error"] == "nvcc fatal : Unsupported gpu architecture 'compute_120'"


def test_the_ptxas_of_a_variable_is_asked_what_it_knows(
    commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert smoke.ptxas(120) == {"path": None}
    old = put(commands, "ptxas", "echo \"Allowed values: 'sm_80','sm_89','sm_90','sm_90a'\"")
    monkeypatch.setenv("TRITON_PTXAS_BLACKWELL_PATH", str(old))
    assert smoke.ptxas(120) == {"path": str(old), "archs": ["80", "89", "90"]}
    assert smoke.ptxas(90) == {"path": None}


def test_the_libraries_of_a_package_are_read_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "sgl_kernel"
    (package / "sm100").mkdir(parents=True)
    (package / "__init__.py").touch()
    content = (ARTEFACTS / "with-sm120.so").read_bytes()
    (package / "sm100/common_ops.abi3.so").write_bytes(content)
    (package / "spatial_ops.abi3.so").write_bytes(content[:500])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = libraries.kernels()["libraries"]
    assert found["sm100/common_ops.abi3.so"]["images"] == [
        {"containers": 2, "images": ["sm_103a", "sm_120f", "sm_90a"]}
    ]
    assert "unknown" in found["spatial_ops.abi3.so"]


def test_a_library_for_another_torch_names_what_is_missing(tmp_path: Path) -> None:
    found = libraries.library(ARTEFACTS / "other-torch.so", Everything(), frozenset())
    assert found["missing_first"] == ["c10::gone_since(c10::SymInt const&, int)"]


@pytest.fixture(scope="module")
def patches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_patches(tmp_path_factory.mktemp("sample") / "patches")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site with a small SGLang in it, and nothing else on the path."""
    tree = write_tree(tmp_path / "site")
    monkeypatch.setattr(sys, "path", [str(tree)])
    return tree


def test_an_unpatched_sglang_is_one(site: Path) -> None:
    assert packages.installed()["versions"] == {"sglang": "0.5.17"}
    assert packages.patch_set() == {"applied": None, "modules": False, "changed": []}


def test_the_patch_set_is_known_by_its_hash_and_an_edit_by_its_file(
    site: Path, patches: Path
) -> None:
    applied = apply(site, patches).set_hash
    assert packages.patch_set() == {"applied": applied, "modules": True, "changed": []}
    (site / WORKER).write_text("edited\n")
    (site / SPEC).unlink()
    assert packages.patch_set()["changed"] == [SPEC, WORKER]


def test_only_exact_requirements_without_a_condition_are_pins(site: Path) -> None:
    metadata = site / "sglang-0.5.17.dist-info/METADATA"
    metadata.write_text(
        "Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.17\n"
        "Requires-Dist: torch==2.11.0\nRequires-Dist: flashinfer_python[cu13]==0.6.15.post1\n"
        "Requires-Dist: numpy\nRequires-Dist: diffusers==0.37.0; extra == 'diffusion'\n\n"
    )
    assert packages.pins()["exact"] == {
        "torch": "2.11.0",
        "flashinfer-python": "0.6.15.post1",
    }


def test_a_package_that_is_there_twice_is_told_with_both_versions(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = tmp_path / "older/sglang-0.5.9.dist-info"
    older.mkdir(parents=True)
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.9\n\n")
    monkeypatch.setattr(sys, "path", [str(site), str(tmp_path / "older")])
    found = packages.installed()
    assert found["versions"]["sglang"] == "0.5.17"
    assert found["twice"] == {"sglang": ["0.5.17", "0.5.9"]}


def test_pytorch_is_known_without_an_import(site: Path) -> None:
    info = site / "torch-2.11.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n\n")
    (site / "torch").mkdir()
    (site / "torch/version.py").write_text(
        "from typing import Optional\n__version__ = '2.11.0+cu130'\ndebug = False\n"
        "cuda: Optional[str] = '13.0'\ngit_version = 'abc'\nhip: Optional[str] = None\n"
    )
    assert packages.torch() == {"version": "2.11.0+cu130", "cuda": "13.0"}
