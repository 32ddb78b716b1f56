"""The servers of these tests: what each one is, starting it once, stopping them.

A start takes most of a minute, and the pair of the lab is tiny: many servers share one GPU. Each is
started by the first test that asks for it and outlives that test's worker; the others find it by a
file in one folder. Servers for several sessions of tests:

    DDTREE_SGLANG_GPU=DIR python -m tests.sglang_gpu.fleet FOLDER NAME ...   # until it is stopped
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ddtree_ops_cli.lab
from ddtree_ops_cli.patchset.hunks import applied, parse

WEIGHTS = Path(ddtree_ops_cli.lab.__file__).parent / "weights"
CPU_FAULTS = Path(__file__).parents[1] / "sglang_cpu" / "faults"
GPU_FAULTS = Path(__file__).parent / "faults"
FIRST_PORT = 21000
ENGINE = "DDTREE_SGLANG_GPU"
SESSION = "DDTREE_FLEET_SESSION"
"""Names of variables: where the patched SGLang is, and whose the servers are."""
BUDGETS = (8, 15, 16, 17, 24, 32, 48, 64)
LINEAR = ("--speculative-algorithm", "DFLASH")
NO_OVERLAP = "--disable-overlap-schedule"
NO_RADIX = "--disable-radix-cache"
NO_GRAPH = "--disable-cuda-graph"
KEPT_STATES = ("kept-state-of-the-neighbour", "kept-state-still-written")
"""Faults of the states that prefix reuse starts from."""
FINE = ("cache-left-behind", *KEPT_STATES)
"""Faults that the rounding of bf16 hides, wholly or nearly: they are served in float32."""
FLOAT32 = {"SGLANG_MAMBA_CONV_DTYPE": "float32"}
FLOAT32_PATCH = "float32"


def tree(budget: int, *more: str) -> tuple[str, ...]:
    flags = ("--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", str(budget))
    return (*flags, *more)


@dataclass(frozen=True)
class Served:
    """One server: CUDA graphs (1, 2, 4 and 8 requests), overlap and prefix reuse are on."""

    flags: tuple[str, ...]
    dtype: str = "bfloat16"
    environment: Mapping[str, str] = field(default_factory=dict)
    patches: tuple[str, ...] = ()
    """Planted faults, and `float32`."""
    gpus: int = 1
    as_shipped: bool = False
    """With SGLang's own choice of graphs, samplers and state intervals."""

    @property
    def reuses(self) -> bool:
        return NO_RADIX not in self.flags

    def argv(self, port: int, folder: Path) -> list[str]:
        line = [sys.executable, "-W", "ignore", "-m", "sglang.launch_server"]
        line += ["--host", "127.0.0.1", "--port", str(port), "--nccl-port", str(port + 500)]
        line += ["--model-path", str(WEIGHTS / "target"), "--served-model-name", "lab-pair"]
        line += ["--speculative-draft-model-path", str(WEIGHTS / "drafter")]
        line += ["--speculative-draft-attention-backend", "triton"]
        line += ["--dtype", self.dtype, "--attention-backend", "triton", "--enable-metrics"]
        line += ["--max-running-requests", "8", "--max-total-tokens", "65536"]
        line += ["--max-mamba-cache-size", "96", "--tp-size", str(self.gpus)]
        # Or each idle server keeps a core busy.
        line += ["--sleep-on-idle"]
        if not self.as_shipped:
            line += ["--cuda-graph-bs", "1", "2", "4", "8", "--disable-prefill-cuda-graph"]
            line += ["--sampling-backend", "pytorch", "--chunked-prefill-size", "512"]
            # As short as a tree allows, so that short answers leave states to reuse.
            line += ["--mamba-track-interval", "64" if "64" not in self.flags else "128"]
        return [*line, *(flag.format(folder=folder) for flag in self.flags)]


def _fleet() -> dict[str, Served]:
    simulated = ("--speculative-ddtree-chain-seed", "5")
    length = {"SGLANG_SIMULATE_ACC_LEN": "5"}
    log = "--speculative-ddtree-log-steps"
    shadow = ("--speculative-ddtree-mode", "shadow-linear", log, "{folder}/shadow.jsonl")
    return {
        # The references reuse nothing: DFLASH itself saves states that are not of the prefix.
        "linear-bf16": Served((*LINEAR, NO_RADIX)),
        **{f"tree-{budget}-bf16": Served(tree(budget)) for budget in BUDGETS},
        "tree-16-bf16-as-shipped": Served(tree(16), as_shipped=True),
        "tree-64-bf16-as-shipped": Served(tree(64), as_shipped=True),
        "tree-16-bf16-no-overlap": Served(tree(16, NO_OVERLAP)),
        "tree-16-bf16-tp2": Served(tree(16), gpus=2),
        "replayed": Served(tree(16, NO_RADIX)),
        "eager": Served(tree(16, NO_RADIX, NO_GRAPH)),
        **{f"fault-{fault}": _faulty(fault) for fault in sorted(faults())},
        "logged": Served(tree(24, log, "{folder}/steps.jsonl")),
        "shadow": Served(tree(24, *shadow)),
        "simulated-linear": Served(LINEAR, environment=length),
        "simulated-spine": Served(tree(16, *simulated), environment=length),
        "simulated-off-spine": Served(
            tree(16, *simulated), environment={**length, "DDTREE_SIMULATE_PATH": "off-spine"}
        ),
        "linear-f32": Served((*LINEAR, NO_RADIX), "float32", FLOAT32, (FLOAT32_PATCH,)),
        **{
            f"tree-{budget}-f32": Served(tree(budget), "float32", FLOAT32, (FLOAT32_PATCH,))
            for budget in BUDGETS
        },
    }


def _faulty(fault: str) -> Served:
    """Without prefix reuse, but where the fault is in what that takes."""
    flags = tree(16) if fault in KEPT_STATES else tree(16, NO_RADIX)
    if fault in FINE:
        return Served(flags, "float32", FLOAT32, (FLOAT32_PATCH, fault))
    return Served(flags, patches=(fault,))


def faults() -> dict[str, Path]:
    """Patches that must be noticed, by name."""
    found = [*CPU_FAULTS.glob("*.patch"), *GPU_FAULTS.glob("*.patch")]
    return {patch.stem: patch for patch in found}


def float32() -> dict[str, Path]:
    """What lets a GPU serve the pair in float32, by name."""
    return {FLOAT32_PATCH: Path(__file__).parent / f"{FLOAT32_PATCH}.patch"}


def patched(names: Sequence[str], engine: Path, destination: Path) -> Path:
    """A copy of the folder `engine` in which the files of these patches are its own."""
    # A session before this one may have left its own.
    shutil.rmtree(destination, ignore_errors=True)
    shutil.copytree(engine / "sglang", destination / "sglang", copy_function=os.link)
    for name in names:
        patch = {**faults(), **float32()}[name]
        for path, change in parse(patch.read_bytes(), where=patch.name).items():
            content = (destination / path).read_bytes()
            (destination / path).unlink()
            (destination / path).write_bytes(applied(change, content, where=patch.name))
    return destination


FLEET = _fleet()


def on(*names: str) -> list[Any]:
    """Parameters: the tests of one server run one after the other, those of others beside them."""
    return [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in names]


def linear_of(name: str) -> str:
    """The chain's server of the same precision."""
    suffix = {"bfloat16": "bf16", "float32": "f32"}
    return f"linear-{suffix[FLEET[name].dtype]}"


def start_once(name: str, engine: Path, folder: Path) -> bool:
    """Sees to it that a server is started. False where this machine has too few GPUs for it."""
    gpus = visible_gpus()
    needed = FLEET[name].gpus
    if needed > len(gpus):
        return False
    turn = list(FLEET).index(name) if needed == 1 else 0
    with (folder / f"{name}.starting").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / f"{name}.json").exists():
            chosen = [gpus[(turn + each) % len(gpus)] for each in range(needed)]
            _start(name, engine, folder, chosen)
    return True


def _start(name: str, engine: Path, folder: Path, gpus: Sequence[str]) -> None:
    """Its address, its process and whose it is go to FOLDER/NAME.json."""
    served = FLEET[name]
    port = FIRST_PORT + list(FLEET).index(name)
    path = [str(engine)]
    if served.patches:
        path.insert(0, str(patched(served.patches, engine, folder / f"{name}.engine")))
    environment = {
        **os.environ,
        **served.environment,
        "PYTHONPATH": ":".join([*path, os.environ.get("PYTHONPATH", "")]).rstrip(":"),
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        # The other servers take memory while this one looks.
        "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "false",
    }
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            served.argv(port, folder),
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    found = {"url": f"http://127.0.0.1:{port}", "pid": process.pid, "log": str(log)}
    found["session"] = os.environ[SESSION]
    # Whole or not there: others look for it without the lock.
    (folder / f"{name}.new").write_text(json.dumps(found))
    (folder / f"{name}.new").rename(folder / f"{name}.json")


def stop(folder: Path) -> None:
    """Ends the servers that this session started, and those alone."""
    for file in folder.glob("*.json"):
        found = json.loads(file.read_text())
        if found["session"] == os.environ[SESSION]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(found["pid"], signal.SIGKILL)
            file.unlink()


@cache
def visible_gpus() -> list[str]:
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if asked:
        return asked.split(",")
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    return [str(index) for index in range(len(listed.stdout.splitlines()))]


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[SESSION] = str(os.getpid())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        for name in names:
            start_once(name, Path(os.environ[ENGINE]).resolve(), folder)
        threading.Event().wait()
    finally:
        stop(folder)


if __name__ == "__main__":
    main()
