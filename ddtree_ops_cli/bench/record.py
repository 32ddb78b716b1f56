"""The JSON document of a run: everything that was measured, and all it takes to repeat it."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .comparison import Comparison
from .measurement import Measurement, Round
from .prompts import Suite
from .run import MOST_PASSES, STEADY_PASSES, STEADY_WITHIN, Run
from .schedule import block_order, round_order
from .stats import CONFIDENCE
from .verdict import cautions, verdict

if TYPE_CHECKING:
    from ..engine_api.answers import ServerInfo
    from ..services.runtimes import Instance

FORMAT = 2
"""Raised when a key changes its meaning or goes away."""
_SECRET = ("api_key", "password", "token")


@dataclass(frozen=True, slots=True)
class Side:
    """An arm as it was deployed."""

    name: str
    instance: Instance
    info: ServerInfo
    gpu_kind: str
    temporary: bool
    """Started for this run, and stopped after it."""


@dataclass(slots=True)
class Record:
    """Writes the document of `run` to `file`, whole or not at all."""

    file: Path
    host: str
    suite: Suite
    run: Run
    sides: list[Side] = field(default_factory=list)
    """The arms that have been there so far."""
    started_at: str = field(default_factory=lambda: _now())
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def write(self, comparison: Comparison | None = None) -> dict[str, Any]:
        """UsageError if the file cannot be written."""
        document = self.document(comparison)
        write_whole(self.file, json.dumps(document, indent=1, allow_nan=False) + "\n")
        return document

    def document(self, comparison: Comparison | None) -> dict[str, Any]:
        run, settings = self.run, self.run.settings
        planned = max(settings.rounds, len(run.rounds))
        return {
            "format": FORMAT,
            "complete": run.status == "complete",
            "status": run.status,
            "reason": run.reason,
            "started_at": self.started_at,
            "written_at": _now(),
            "host": self.host,
            "arms": {side.name: _side(side) for side in self.sides},
            "suite": {
                "name": self.suite.name,
                "file": str(self.suite.file),
                "sha256": self.suite.sha256,
                "prompts": [asdict(prompt) for prompt in run.prompts],
            },
            "request": {
                "endpoint": "/v1/chat/completions",
                "max_tokens": settings.shape.max_tokens,
                "temperature": settings.shape.temperature,
                **settings.shape.options,
            },
            "seed": settings.seed,
            "rounds_asked": settings.rounds,
            "busy_ok": settings.busy_ok,
            "machine": {
                "platform": platform.platform(),
                "python": platform.python_version(),
                "ddtree": version("ddtree-ops"),
                "cpus": os.cpu_count(),
                "load_before": self.load_before,
                "load_now": os.getloadavg()[0],
            },
            "way": way(run),
            "schedule": schedule_document(run, planned),
            "warm_up": {
                "steady_when": f"the last {STEADY_PASSES} passes within {STEADY_WITHIN:.0%}, "
                f"at most {MOST_PASSES} passes",
                "starts": [{**asdict(warm), "steady": warm.steady} for warm in run.warm_ups],
                "steady": {arm: run.steady(arm) for arm in run.arms},
            },
            "twins": [asdict(twin) for twin in run.twins],
            "rounds": [_round(done) for done in run.rounds],
            "comparison": None if comparison is None else _comparison(comparison, run),
        }


def write_whole(file: Path, text: str) -> None:
    """Replace `file` in one step: a reader, or a killed run, never sees half of it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=file.parent, prefix=f".{file.name}.", delete=False, encoding="utf-8"
        ) as fresh:
            try:
                fresh.write(text)
                fresh.flush()
                os.fsync(fresh.fileno())
                Path(fresh.name).replace(file)
            except BaseException:
                Path(fresh.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror}", where=str(file), mend="choose another --json"
        ) from error


def way(run: Run) -> str:
    """How the arms are there: at once, or one at a time, each block a fresh start of its arm."""
    return "in turns on one GPU" if run.in_turns else "side by side"


def schedule_document(run: Run, rounds: int) -> list[list[dict[str, Any]]]:
    """Of each round, pairs in their order; or blocks, if the arms take turns."""
    ids, seed = [prompt.id for prompt in run.prompts], run.settings.seed
    if run.in_turns:
        return [
            [
                {"arm": block.arm, "prompts": list(block.prompts)}
                for block in block_order(index, ids, run.arms, seed=seed)
            ]
            for index in range(rounds)
        ]
    return [
        [
            {"prompt": pair.prompt, "order": list(pair.arms)}
            for pair in round_order(index, ids, run.arms, seed=seed)
        ]
        for index in range(rounds)
    ]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _side(side: Side) -> dict[str, Any]:
    instance = side.instance
    return {
        "labels": asdict(instance.labels),
        "url": instance.url,
        "identity": instance.identity,
        "gpu_kind": side.gpu_kind,
        "argv": list(instance.argv),
        "temporary": side.temporary,
        "version": side.info.version,
        "server_info": _without_secrets(side.info.arguments),
    }


def _without_secrets(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: "(left out)" if value and key.endswith(_SECRET) else value
        for key, value in arguments.items()
    }


def _round(done: Round) -> dict[str, Any]:
    return {
        "round": done.index,
        "disturbed": list(done.disturbed),
        "load": done.load,
        "measurements": [_measurement(one) for one in done.measurements],
    }


def _measurement(one: Measurement) -> dict[str, Any]:
    found = asdict(one)
    timing = found.pop("timing")
    return {**found, **timing, "decode_tok_s": one.timing.decode_tok_s, "step_ms": one.step_ms}


def _comparison(comparison: Comparison, run: Run) -> dict[str, Any]:
    return {
        "in_words": [verdict(comparison), *cautions(comparison, run)],
        "method": "paired by round, log ratios adjusted for the order in the pair, "
        f"Student's t, {CONFIDENCE:.0%}",
        **asdict(comparison),
    }
