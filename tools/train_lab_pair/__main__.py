"""Train the lab pair.

    python -m tools.train_lab_pair prepare  --work DIR     # CPU: tokenizer, text, exchanges
    python -m tools.train_lab_pair target   --work DIR     # GPU, minutes
    python -m tools.train_lab_pair answers  --work DIR     # the target answers training prompts
    python -m tools.train_lab_pair drafter  --work DIR
    python -m tools.train_lab_pair evaluate --work DIR
    python -m tools.train_lab_pair card     --work DIR     # README.md from what the steps logged

Each step reads what the ones before it left in DIR and adds NAME.json with its settings, times
and results. Needs PyTorch, tokenizers, safetensors and NumPy.

Training takes deterministic algorithms only, so that a seed gives the same weights again on the
same machine and versions; the card says what was measured of that.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import torch

from . import card, checkpoint, data
from .evaluate import evaluate
from .generate import answer
from .questions import FAMILIES
from .shapes import IM_END
from .train_drafter import DrafterRecipe, held_out_loss, train_drafter
from .train_target import TargetRecipe, held_out_losses, train_target


def _device() -> torch.device:
    torch.set_float32_matmul_precision("high")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _exact() -> None:
    """Full float32 where results are reported: the engines that use the pair have no tf32."""
    torch.set_float32_matmul_precision("highest")


def _forbid_chance() -> None:
    """Only deterministic algorithms, or an error. Call it before anything runs on a GPU."""
    # cuBLAS reads this once, when it starts; without it PyTorch refuses matrix products
    # (docs.nvidia.com/cuda/cublas, "Results reproducibility").
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # Attention by plain matrix products: the fused kernels add the parts of a gradient in the
    # order in which they happen to finish, or have a deterministic form in some versions only.
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)


def _machine(device: torch.device) -> str:
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or "CPU"
    return f"{name}, PyTorch {torch.__version__}, Python {platform.python_version()}"


def _log(work: Path, name: str, content: dict[str, Any]) -> None:
    (work / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def run_prepare(work: Path, options: argparse.Namespace) -> None:
    start = time.perf_counter()
    data.prepare(work, seed=options.seed, train_count=options.exchanges, held_out_count=1000)
    rows, text = data.load(work / "train.npz")
    held_out, held_out_text = data.load(work / "held_out.npz")
    _log(
        work,
        "prepare",
        {
            "seed": options.seed,
            "python": platform.python_version(),
            "exchanges": len(rows),
            "exchange_tokens": len(rows.tokens),
            "library_tokens": len(text),
            "held_out_exchanges": len(held_out),
            "held_out_library_tokens": len(held_out_text),
            "seconds": round(time.perf_counter() - start, 1),
        },
    )


def run_target(work: Path, options: argparse.Namespace) -> None:
    _forbid_chance()
    device = _device()
    recipe = TargetRecipe(steps=options.steps, seed=options.seed)
    target, log = train_target(data.load(work / "train.npz"), recipe, device)
    checkpoint.save_target(target, work / "target")
    _exact()
    target = checkpoint.load_target(work / "target", device)
    rows, text = data.load(work / "held_out.npz")
    log["held_out_loss"] = held_out_losses(target, rows, text, list(FAMILIES))
    log["machine"] = _machine(device)
    log["deterministic"] = True
    log["parameters"] = sum(p.numel() for p in target.parameters())
    print("target held-out loss", log["held_out_loss"], flush=True)
    _log(work, "target", log)


def run_answers(work: Path, options: argparse.Namespace) -> None:
    """Greedy answers to some training prompts and sampled ones to others; unended ones dropped."""
    device = _device()
    start = time.perf_counter()
    target = checkpoint.load_target(work / "target", device)
    rows, _ = data.load(work / "train.npz")
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(options.seed))
    chosen = order[: options.prompts].tolist()
    sampled = len(chosen) // 4
    kept_prompts, kept_answers, families = [], [], []
    for part, temperature in ((chosen[sampled:], 0.0), (chosen[:sampled], 0.7)):
        prompts = [rows.prompt(i) for i in part]
        said = answer(
            target, prompts, max_new_tokens=160, temperature=temperature, seed=options.seed
        )
        for i, prompt, tokens in zip(part, prompts, said, strict=True):
            if tokens[-1] == IM_END:
                kept_prompts.append(prompt.tolist())
                kept_answers.append(tokens)
                families.append(int(rows.families[i]))
    data.save_answers(work / "answers.npz", kept_prompts, kept_answers, families)
    _log(
        work,
        "answers",
        {
            "prompts": len(chosen),
            "sampled": sampled,
            "ended": len(kept_answers),
            "tokens": sum(map(len, kept_answers)),
            "seconds": round(time.perf_counter() - start, 1),
        },
    )
    print("answers", len(kept_answers), "of", len(chosen), flush=True)


def run_drafter(work: Path, options: argparse.Namespace) -> None:
    _forbid_chance()
    device = _device()
    target = checkpoint.load_target(work / "target", device)
    answers, _ = data.load(work / "answers.npz")
    recipe = DrafterRecipe(steps=options.steps, seed=options.seed)
    drafter, log = train_drafter(target, answers, recipe, device)
    checkpoint.save_drafter(drafter, work / "drafter")
    log["machine"] = _machine(device)
    log["deterministic"] = True
    log["parameters"] = sum(p.numel() for p in drafter.parameters())
    _log(work, "drafter", log)


def run_evaluate(work: Path, options: argparse.Namespace) -> None:
    device = _device()
    _exact()
    start = time.perf_counter()
    target = checkpoint.load_target(work / "target", device)
    drafter = checkpoint.load_drafter(work / "drafter", device)
    held_out, _ = data.load(work / "held_out.npz")
    names = list(FAMILIES)
    table, said = evaluate(target, drafter, held_out, names)
    ended = [i for i, tokens in enumerate(said) if tokens[-1] == IM_END]
    path = work / "held_out_answers.npz"
    data.save_answers(
        path,
        [held_out.prompt(i).tolist() for i in ended],
        [said[i] for i in ended],
        [int(held_out.families[i]) for i in ended],
    )
    table["drafter_held_out_loss"] = held_out_loss(target, drafter, data.load(path)[0])
    table["machine"] = _machine(device)
    table["seconds"] = round(time.perf_counter() - start, 1)
    _log(work, "evaluate", table)
    for family, arms in table["accept_length"].items():
        print(family, {arm: cell["accept_length"] for arm, cell in arms.items()}, flush=True)


def run_card(work: Path, options: argparse.Namespace) -> None:
    (work / "README.md").write_text(card.write(work))


def main() -> None:
    parser = argparse.ArgumentParser(prog="train_lab_pair", description=__doc__.split("\n")[0])
    steps = parser.add_subparsers(dest="step", required=True)
    defaults = {
        "prepare": (run_prepare, {"exchanges": 240_000}),
        "target": (run_target, {"steps": 3600}),
        "answers": (run_answers, {"prompts": 60_000}),
        "drafter": (run_drafter, {"steps": 500}),
        "evaluate": (run_evaluate, {}),
        "card": (run_card, {}),
    }
    for name, (run, numbers) in defaults.items():
        step = steps.add_parser(name)
        step.add_argument("--work", type=Path, required=True, help="folder of all results")
        step.add_argument("--seed", type=int, default=1)
        for option, default in numbers.items():
            step.add_argument(f"--{option}", type=int, default=default)
        step.set_defaults(run=run)
    options = parser.parse_args()
    options.run(options.work, options)


if __name__ == "__main__":
    main()
