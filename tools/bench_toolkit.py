"""What the toolkit itself costs: start-up, the lab's speed and memory, the demo, real hosts, an
installation.

Prints measured figures beside their aims; asserts nothing. `--json FILE` keeps them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

from ddtree_ops_cli.bench.prompts import load_suite
from ddtree_ops_cli.engine_api.client import EngineClient
from ddtree_ops_cli.output.progress import step
from ddtree_ops_cli.output.tables import show
from tools.bench_hosts import hosts

PROJECT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
REPEATS = 7
ANSWER_TOKENS = 128
PORTS = {"plain": 31900, "dflash-linear": 31901, "ddtree": 31902}

Row = tuple[str, str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--skip-install", action="store_true", help="leave out the fresh venv")
    chosen = parser.parse_args()
    parts: list[tuple[str, Callable[[], list[Row]]]] = [
        ("start-up", startup),
        ("lab", lab),
        ("demo", demo),
        ("hosts", hosts),
    ]
    if not chosen.skip_install:
        parts.append(("installation", installation))
    rows: list[Row] = []
    for title, measure in parts:
        with step(title):
            rows += measure()
    show(("figure", "measured", "aim"), rows)
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=2))


def startup() -> list[Row]:
    """CPU time, as a ratio to importing typer and rich in the same minute."""
    commands = {
        "base": [sys.executable, "-c", "import typer, rich"],
        "ddtree --help": [str(BIN / "ddtree"), "--help"],
        "ddtree status": [str(BIN / "ddtree"), "status"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(REPEATS):
        for name, argv in commands.items():
            times[name].append(_cpu_seconds(argv))
    base = statistics.median(times.pop("base"))
    return [
        (f"CPU time, {name}", f"{statistics.median(found) / base:.2f} x base", "<= 2 x")
        for name, found in times.items()
    ]


def lab() -> list[Row]:
    """Tokens per second, prefill included, of each mode on the held-out prompts, arms interleaved,
    and the largest server's memory."""
    rates: dict[str, list[float]] = {mode: [] for mode in PORTS}
    memory = 0
    with ExitStack() as stack:
        state = stack.enter_context(tempfile.TemporaryDirectory())
        environment = {**os.environ, "XDG_STATE_HOME": state}
        engines = {}
        for gpu, (mode, port) in enumerate(PORTS.items()):
            words = ["lab", "--service", mode, "--gpu", str(gpu)]
            stack.callback(_ddtree, ["stop", *words], environment)
            _ddtree(["deploy", *words, "--port", str(port)], environment)
            engines[mode] = stack.enter_context(EngineClient(f"http://127.0.0.1:{port}"))
        for prompt in load_suite("held-out").prompts:
            for mode, engine in engines.items():
                begin = time.perf_counter()
                answer = engine.chat(prompt.text, model="lab-pair", max_tokens=ANSWER_TOKENS)
                rates[mode].append(answer.completion_tokens / (time.perf_counter() - begin))
        for record in Path(state).glob("ddtree/hosts/lab/*/service.json"):
            process = psutil.Process(json.loads(record.read_text())["pid"])
            memory = max(memory, process.memory_info().rss)
    plain = statistics.median(rates["plain"])
    speeds = [
        (
            f"lab, {mode}",
            f"{statistics.median(found):.0f} tok/s, {statistics.median(found) / plain:.2f} x plain",
            "",
        )
        for mode, found in rates.items()
    ]
    return [*speeds, ("memory of a lab server", f"{memory / 1e6:.0f} MB", "<= 500 MB")]


def demo() -> list[Row]:
    begin = time.monotonic()
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [PROJECT / "tools" / "demo.sh"],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PATH": path},
    )
    return [("make demo, after installation", f"{time.monotonic() - begin:.0f} s", "<= 120 s")]


def installation() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder) / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        pip = [venv / "bin" / "pip", "install", "--quiet", PROJECT]
        subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
        size = sum(
            file.stat().st_size
            for file in venv.rglob("*")
            if file.is_file() and not file.is_symlink()
        )
    return [("installation without extras", f"{size / 1e6:.0f} MB", "<= 350 MB")]


def _cpu_seconds(argv: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _ddtree(words: Sequence[str], environment: dict[str, str]) -> None:
    subprocess.run([BIN / "ddtree", *words], check=True, env=environment, capture_output=True)


if __name__ == "__main__":
    main()
