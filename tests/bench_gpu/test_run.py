"""The whole program on this machine: nvidia-smi is a script, SGLang the scripted engine."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tools.bench_gpu.__main__ import main

ENGINE = Path(__file__).parent / "engine"
SMI = """#!/bin/sh
case "$1" in
  --query-gpu=index,uuid*)
    echo "0, GPU-aaaa, 143771, 4, 9.0, 580.159.04, Disabled, Enabled, NVIDIA H200"
    echo "1, GPU-bbbb, 143771, 4, 9.0, 580.159.04, Disabled, Enabled, NVIDIA H200" ;;
  --query-gpu=index,clocks*) echo "0, 345, 3201, 30, 70.0, 700.0, 0x1" ;;
esac
"""


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of its nvidia-smi."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(SMI)
    (tools / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    return tools


def free_ports() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port if port < 60_000 else 20_000


def run(out: Path, *words: str) -> tuple[int, dict[str, Any]]:
    code = main(
        [
            *("--out", str(out), "--sglang", str(ENGINE), "--base-port", str(free_ports())),
            *("--rounds", "2", "--max-tokens", "8", "--lab-suite", "story"),
            *("--budgets", "8,16", "--lab-budgets", "8", "--off-spine", "", *words),
        ]
    )
    document: dict[str, Any] = json.loads((out / "bench-gpu.json").read_text())
    return code, document


def test_shapes_on_two_gpus_at_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, document = run(out, "--parts", "shapes", "--profile-steps", "0", "--start-together")
    assert (code, document.get("failures")) == (0, None)
    assert set(document["contests"]) == {"27b-tree-8-gpu0", "27b-tree-16-gpu1"}
    for found in document["contests"].values():
        assert found["counted"] + len(found["disturbed"]) == found["rounds"] >= 2
        kept = found["measurements"]
        rows = [dict(zip(kept["columns"], row, strict=True)) for row in kept["rows"]]
        assert {row["arm"] for row in rows} == {"tree", "linear"}
        assert {row["verify_steps"] for row in rows} == {4}
    pinned = {title: server["gpu"]["uuid"] for title, server in document["servers"].items()}
    assert pinned["27b-linear-gpu0"] == pinned["27b-tree-8-gpu0"] == "GPU-aaaa"
    assert pinned["27b-linear-gpu1"] == pinned["27b-tree-16-gpu1"] == "GPU-bbbb"
    table = (out / "bench-gpu.md").read_text()
    assert "| 27b-tree-16-gpu1 |" in table
    assert "<= 1.15: " in table


def test_pinned_services_swap_and_one_outlives_the_other(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, document = run(out, "--parts", "pinned")
    assert (code, document.get("failures")) == (0, None)
    halves = [f"pinned, linear on GPU {a}, tree on GPU {b}" for a, b in ((0, 1), (1, 0))]
    assert set(document["contests"]) == {*halves, "pinned, both halves"}
    assert document["contests"]["pinned, both halves"]["rounds"] == sum(
        document["contests"][half]["rounds"] for half in halves
    )
    assert document["pinned_sight"][halves[1]]["lab-pair-tree-8-gpu0"]["visible"] == ["GPU-aaaa"]
    (killed,) = document["pinned_kill"].values()
    assert killed["killed"] == "lab-pair-tree-8-gpu0"
    assert killed["answers"] >= 1


def test_what_fails_is_recorded_and_the_rest_goes_on(tmp_path: Path) -> None:
    """The script cannot be profiled."""
    out = tmp_path / "out"
    code, document = run(out, "--parts", "shapes", "--budgets", "8", "--profile-steps", "4")
    assert code == 1
    assert set(document["failures"]) == {"profile 27b-linear-gpu0", "profile 27b-tree-8-gpu0"}
    assert document["contests"]["27b-tree-8-gpu0"]["counted"] >= 1
    assert document["failures"]["profile 27b-tree-8-gpu0"] in (out / "bench-gpu.md").read_text()


def test_no_part_begins_that_would_not_end_in_time(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, document = run(out, "--parts", "shapes", "--budgets", "8", "--limit-s", "20")
    assert code == 1
    assert "not run: it takes about" in document["failures"]["contest 27b-tree-8-gpu0"]


def test_a_folder_without_the_patch_set_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path), "--sglang", str(tmp_path)]) == 2
    assert "ddtree patch apply" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--budgets", "16,x"), "not a whole number from 1: x"),
        (("--rounds", "0"), "not a whole number from 1: 0"),
        (("--accept-length", "17"), "at most 16"),
        (("--parts", "shapes,all"), "no part all; there is shapes, lab, pinned"),
        (("--lab-budgets", ""), "--lab-budgets names no budget"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--out", str(tmp_path), "--sglang", str(ENGINE), *words])
    assert told in capsys.readouterr().err


def test_a_dry_run_starts_nothing_and_shows_the_lanes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["--out", str(out), "--sglang", str(ENGINE), "--dry-run"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["lanes"] == [
        ["16: linear GPU 0, tree GPU 0", "32: linear GPU 0, tree GPU 0"],
        ["16 off the spine: linear GPU 1, tree GPU 1", "64: linear GPU 1, tree GPU 1"],
    ]
    assert not out.exists()


def test_a_tree_forced_off_its_spine_is_a_contest_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("--parts", "shapes", "--budgets", "", "--off-spine", "8", "--profile-steps", "0")
    code, document = run(out, *words)
    assert (code, document.get("failures")) == (0, None)
    assert set(document["contests"]) == {"27b-tree-8-off-spine-gpu0"}


def test_on_one_gpu_that_holds_one_server_the_arms_take_turns(tmp_path: Path, host: Path) -> None:
    one = [line for line in SMI.splitlines() if "GPU-bbbb" not in line]
    (host / "nvidia-smi").write_text(
        "\n".join(one).replace("143771", "97887").replace('H200"', 'H200" ;;', 1)
    )
    out = tmp_path / "out"
    words = ("--parts", "shapes", "--budgets", "8", "--profile-steps", "0")
    code, document = run(out, *words)
    assert (code, document.get("failures")) == (0, None)
    (found,) = document["contests"].values()
    assert found["in_turns"]
    assert [warm["arm"] for warm in found["warm_ups"]] == ["tree", "linear", "linear", "tree"]
    assert set(document["memory"]) == {"27b-linear-gpu0", "27b-tree-8-gpu0"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_its_results_and_no_server(tmp_path: Path, number: int) -> None:
    out, port = tmp_path / "out", free_ports()
    words = [*("--out", str(out), "--sglang", str(ENGINE), "--base-port", str(port))]
    words += ["--parts", "shapes", "--budgets", "8,16", "--off-spine", "", "--rounds", "100000"]
    told = tmp_path / "told"
    with told.open("w") as stderr:
        process = subprocess.Popen([sys.executable, "-m", "tools.bench_gpu", *words], stderr=stderr)
    deadline = time.monotonic() + 60
    while "round 3 of" not in told.read_text():
        assert time.monotonic() < deadline, told.read_text()
        time.sleep(0.1)
    process.send_signal(number)
    assert process.wait(30) == 130
    assert "interrupted; what was measured is in the output folder" in told.read_text()
    assert len(json.loads((out / "bench-gpu.json").read_text())["servers"]) == 4
    left = [one for one in psutil.process_iter(["cmdline"]) if str(out) in str(one.info["cmdline"])]
    assert left == []
