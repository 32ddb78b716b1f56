"""The lab server's flags: a part of SGLang's, by the same names, and the DDTREE ones."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..errors import UsageError

if TYPE_CHECKING:
    from .decode import Speculation

PROGRAM = "python -m ddtree_ops_cli.lab.server"
LOG_LEVELS = ("debug", "info", "warning", "error")
# A service profile sets these for SGLang; the same profile must start the lab.
_WITHOUT_MEANING = (
    "--attention-backend",
    "--max-running-requests",
    "--mem-fraction-static",
    "--page-size",
)
# The flags of DDTREE by the end of their names, each with its value where it is not given.
_OF_DDTREE = {
    "budget": None,
    "topk_cap": None,
    "chain_seed": None,
    "mode": "tree",
    "allow_hybrid_unsafe": False,
    "log_steps": None,
}


@dataclass(frozen=True, slots=True)
class Arguments:
    model_path: Path
    served_model_name: str
    host: str
    port: int
    context_length: int | None
    """None: what the model's own config.json says."""
    random_seed: int
    """Where the seeds of requests come from that sample and bring none."""
    log_level: str
    speculation: Speculation
    draft_model_path: Path | None
    allow_hybrid_unsafe: bool
    log_steps: Path | None


def parse(argv: Sequence[str] | None) -> Arguments:
    """Read the command line. Raises UsageError."""
    from .decode import Speculation

    found = _parser().parse_args(argv)
    algorithm = found.speculative_algorithm
    _check(found, algorithm)
    tree = {
        "budget": found.speculative_ddtree_budget,
        "topk_cap": found.speculative_ddtree_topk_cap,
        "chain_seed": found.speculative_ddtree_chain_seed,
    }
    given = {name: value for name, value in tree.items() if value is not None}
    return Arguments(
        model_path=found.model_path,
        served_model_name=found.served_model_name or str(found.model_path),
        host=found.host,
        port=found.port,
        context_length=found.context_length,
        random_seed=found.random_seed if found.random_seed is not None else secrets.randbits(30),
        log_level=found.log_level,
        speculation=Speculation(algorithm, mode=found.speculative_ddtree_mode, **given),
        draft_model_path=found.speculative_draft_model_path,
        allow_hybrid_unsafe=found.speculative_ddtree_allow_hybrid_unsafe,
        log_steps=found.speculative_ddtree_log_steps,
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, where=PROGRAM, mend="--help lists the flags")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        allow_abbrev=False,
        description="The reference engine of ddtree behind the part of SGLang's HTTP surface"
        " that the tool relies on.",
    )
    add = parser.add_argument
    add("--model-path", type=Path, required=True, help="target model directory")
    add("--served-model-name", help="name in /v1/models (default: the model path)")
    add("--host", default="127.0.0.1", help="the only address to listen on (default: %(default)s)")
    add("--port", type=_port, default=30000, help="0 takes a free one (default: %(default)s)")
    add("--context-length", type=int, help="tokens of prompt and answer (default: the model's)")
    add("--random-seed", type=int, help="makes sampled answers repeatable")
    add("--log-level", choices=LOG_LEVELS, default="info")
    add("--enable-metrics", action="store_true", help="no effect: /metrics is always served")
    for flag in _WITHOUT_MEANING:
        add(flag, metavar="X", help="no effect: there is nothing of it in this engine")
    add(
        "--speculative-algorithm",
        choices=("DFLASH", "DDTREE"),
        default="none",
        help="default: plain decoding",
    )
    add("--speculative-draft-model-path", type=Path, help="drafter directory")
    add("--speculative-ddtree-budget", type=int, metavar="N", help="tree nodes besides the root")
    add("--speculative-ddtree-topk-cap", type=int, metavar="K", help="candidates per depth")
    add("--speculative-ddtree-chain-seed", type=int, metavar="D", help="spine kept to this depth")
    add(
        "--speculative-ddtree-mode",
        choices=("tree", "shadow-linear"),
        default="tree",
        help="shadow-linear verifies the chain and logs what the tree would have won",
    )
    add(
        "--speculative-ddtree-allow-hybrid-unsafe",
        action="store_true",
        help="no effect: the lab engine gives every node its parent's state",
    )
    add("--speculative-ddtree-log-steps", type=Path, metavar="FILE", help="one JSON line a step")
    return parser


def _check(found: argparse.Namespace, algorithm: str) -> None:
    drafter = found.speculative_draft_model_path
    if algorithm != "none" and drafter is None:
        raise UsageError(
            f"{algorithm} needs a drafter", where=PROGRAM, mend="add --speculative-draft-model-path"
        )
    if algorithm == "none" and drafter is not None:
        raise UsageError(
            "a drafter without an algorithm is of no use",
            where=PROGRAM,
            mend="add --speculative-algorithm DFLASH or DDTREE",
        )
    if algorithm == "DDTREE":
        shadow = found.speculative_ddtree_mode == "shadow-linear"
        if shadow and found.speculative_ddtree_log_steps is None:
            raise UsageError(
                "shadow-linear logs what the tree would have won, and has no log",
                where=PROGRAM,
                mend="add --speculative-ddtree-log-steps FILE",
            )
        return
    for name, unset in _OF_DDTREE.items():
        if getattr(found, f"speculative_ddtree_{name}") != unset:
            raise UsageError(
                f"--speculative-ddtree-{name.replace('_', '-')} belongs to"
                " --speculative-algorithm DDTREE",
                where=PROGRAM,
                mend="drop it",
            )


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"port {port} is not between 0 and 65535")
    return port
