"""Linear DFLASH against DDTREE on a GPU host: `python -m tools.bench_gpu --out DIR`.

Needs SGLang 0.5.17 with the patch set and nothing from the network; docs/bench-gpu.md tells it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from ddtree_ops_cli.bench.prompts import load_suite
from ddtree_ops_cli.errors import DdtreeError, UsageError

from . import devices
from .contest import Load
from .placement import Match, Placement, place
from .results import Results
from .services import BLOCK, Device, Model, Service, need
from .shapes import pair, write_pair
from .stages import Bench, measure_lab, measure_pinned, measure_shapes

PARTS = ("shapes", "lab", "pinned")
WEIGHTS = Path(__file__).parents[2] / "ddtree_ops_cli" / "lab" / "weights"


def main(words: Sequence[str] | None = None) -> int:
    asked = _arguments(words)
    try:
        return _run(asked)
    except DdtreeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; what was measured is in the output folder", file=sys.stderr)
        return 130


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """However it is ended, no server stays behind."""
    raise KeyboardInterrupt


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.bench_gpu", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="of the results")
    parser.add_argument(
        "--sglang", type=Path, metavar="DIR", help="folder of the package sglang; else PYTHONPATH"
    )
    parser.add_argument("--work", type=Path, metavar="DIR", help="of logs and traces; else in DIR")
    parser.add_argument(
        "--parts", type=_parts, default=PARTS, metavar="A,B", help="of shapes, lab, pinned"
    )
    parser.add_argument("--budgets", type=_numbers, default=(16, 32, 64), metavar="N,N")
    parser.add_argument(
        "--off-spine", type=_numbers, default=(16,), metavar="N,N", help="'' for none"
    )
    parser.add_argument("--lab-budgets", type=_numbers, default=(16, 32, 64), metavar="N,N")
    parser.add_argument("--lab-suite", default="held-out", metavar="SUITE")
    parser.add_argument(
        "--rounds", type=_whole, default=12, help="of interleaved pairs, per contest"
    )
    parser.add_argument("--accept-length", type=_whole, default=6, help="forced at the 27B shapes")
    parser.add_argument("--max-tokens", type=_whole, default=128, help="of an answer")
    parser.add_argument("--profile-steps", type=int, default=20, help="0: no profiles")
    parser.add_argument("--limit-s", type=float, default=3600.0, help="start no part beyond this")
    parser.add_argument(
        "--start-together",
        action="store_true",
        help="servers of one GPU: faster, but what they print about memory is spoiled",
    )
    parser.add_argument("--base-port", type=int, default=31700)
    parser.add_argument("-n", "--dry-run", action="store_true", help="print what would run")
    asked = parser.parse_args(words)
    if asked.accept_length > BLOCK:
        parser.error(f"--accept-length is at most {BLOCK}, the drafter's block")
    if not asked.lab_budgets and {"lab", "pinned"} & set(asked.parts):
        parser.error("--lab-budgets names no budget; leave out lab and pinned (--parts shapes)")
    return asked


def _run(asked: argparse.Namespace) -> int:
    sglang = _sglang(asked.sglang)
    found = devices.devices()
    folder = (asked.work or asked.out).resolve()
    shapes, lab = _models(folder, asked.accept_length)
    placement = _placement(found, shapes, asked.budgets, asked.off_spine)
    if asked.dry_run:
        print(json.dumps(_plan(asked, found, placement, shapes, lab), indent=1))
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    results = Results(asked.out, asked.limit_s)
    for name, value in _host(found, sglang).items():
        results.put("host", name, value)
    bench = Bench(
        results, sglang, folder, asked.start_together, asked.profile_steps, asked.base_port
    )
    if "shapes" in asked.parts:
        write_pair(folder / "qwen3.6-27b-shapes")
        story = load_suite("story").prompts
        load = Load(story, asked.rounds, asked.max_tokens, ignore_eos=True)
        measure_shapes(bench, shapes, pair(), placement, load)
    suite = load_suite(asked.lab_suite).prompts
    if "pinned" in asked.parts:
        if len(found) < 2:
            results.put("failures", "pinned", "not run: it takes two GPUs, and this host has one")
        else:
            half = Load(suite, (asked.rounds + 1) // 2, asked.max_tokens, ignore_eos=False)
            measure_pinned(bench, lab, (found[0], found[1]), asked.lab_budgets[0], half)
    if "lab" in asked.parts:
        load = Load(suite, asked.rounds, asked.max_tokens, ignore_eos=False)
        measure_lab(bench, lab, found[-1], asked.lab_budgets, load)
    for line in devices.clocks():
        results.put("clocks_after", line.split(",")[0], line)
    print((asked.out / "bench-gpu.md").read_text())
    return 1 if results.document.get("failures") else 0


def _models(folder: Path, accept_length: int) -> tuple[Model, Model]:
    pair = folder / "qwen3.6-27b-shapes"
    shapes = Model(
        name="27b",
        target=pair / "target",
        drafter=pair / "drafter",
        dummy=True,
        context=8192,
        requests=1,
        tokens=8192,
        accept_length=accept_length,
    )
    lab = Model(
        name="lab-pair",
        target=WEIGHTS / "target",
        drafter=WEIGHTS / "drafter",
        dummy=False,
        context=2048,
        requests=4,
        tokens=16_384,
    )
    return shapes, lab


def _placement(
    found: Sequence[Device], model: Model, budgets: Sequence[int], off_spine: Sequence[int]
) -> Placement:
    models = pair()

    def gib(budget: int | None) -> float:
        return need(Service(model, budget, found[0], 0), models).total

    wanted = [(budget, False) for budget in budgets] + [(budget, True) for budget in off_spine]
    return place(found, wanted, gib(None), {budget: gib(budget) for budget, _ in wanted})


def _plan(
    asked: argparse.Namespace,
    found: Sequence[Device],
    placement: Placement,
    shapes: Model,
    lab: Model,
) -> dict[str, object]:
    """What would run, with the command line of one server of each kind."""
    models = pair()
    trees = dict.fromkeys((*asked.budgets, *asked.off_spine))
    servers = [Service(shapes, budget, found[0], 0) for budget in (None, *trees)]
    servers += [Service(lab, budget, found[-1], 0) for budget in (None, *asked.lab_budgets)]
    return {
        "parts": asked.parts,
        "lanes": [
            [_told(match, in_turns=lane is placement.turns) for match in lane]
            for lane in (*placement.lanes, placement.across, placement.turns)
            if lane
        ],
        "needs_gib": {
            one.title: round(need(one, models).total, 1) for one in servers if one.model is shapes
        },
        "argv": {one.title: one.argv for one in servers},
    }


def _told(match: Match, *, in_turns: bool) -> str:
    side = " off the spine" if match.off_spine else ""
    side += ", in turns" if in_turns else ""
    return f"{match.budget}{side}: linear GPU {match.linear.index}, tree GPU {match.tree.index}"


def _host(found: Sequence[Device], sglang: Path) -> dict[str, str]:
    manifest = next(sglang.glob("sglang-*.dist-info"), None)
    gpus = ", ".join(f"{one.index}: {one.name}, {one.memory_mib} MiB" for one in found)
    return {
        "machine": f"{platform.platform()}, {os.cpu_count()} CPUs",
        "GPUs": gpus,
        "driver": devices.driver(),
        "Python": platform.python_version(),
        "PyTorch": _torch(),
        "SGLang": manifest.name.split("-")[1].removesuffix(".dist") if manifest else "unknown",
        "clocks before": "; ".join(devices.clocks()),
        "command": " ".join(["python -m tools.bench_gpu", *sys.argv[1:]]),
    }


def _torch() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch")
    except PackageNotFoundError:
        return "not in this environment"


def _sglang(named: Path | None) -> Path:
    places = (
        [named] if named else [Path(p) for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    )
    for place_ in places:
        if (place_ / "sglang" / "srt" / "speculative" / "ddtree").is_dir():
            return place_.resolve()
    raise UsageError(
        "no SGLang with the patch set here",
        where=", ".join(map(str, places)) or "PYTHONPATH",
        mend="name its folder (--sglang), and apply the patches: `ddtree patch apply DIR`",
    )


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"not a whole number from 1: {text}")
    return int(text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_whole(word) for word in text.split(",") if word)


def _parts(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    unknown = [part for part in found if part not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no part {unknown[0]}; there is {', '.join(PARTS)}")
    return found


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    sys.exit(main())
