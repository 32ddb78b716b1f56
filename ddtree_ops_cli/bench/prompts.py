"""Suites: the prompts that a benchmark sends, one JSON object a line.

    {"prompt": "What is 2+2?", "id": "sum", "family": "short answer"}

`prompt` is the message of the user; `id` (default: its number) and `family` name it in the report;
`reference` holds decode rates in tok/s by arm, from elsewhere (`reference_source`), to be shown
beside the measured ones. A bundled suite is called by its name, any other by its file.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ProfileError, UsageError

SUITES = Path(__file__).parent / "suites"
_KEYS = {"prompt": str, "id": str, "family": str, "reference": dict, "reference_source": str}


@dataclass(frozen=True, slots=True)
class Prompt:
    id: str
    text: str
    family: str = ""
    reference: Mapping[str, float] = field(default_factory=dict)
    """Decode rates in tok/s, by arm, that somebody else measured elsewhere."""
    reference_source: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    file: Path
    sha256: str
    """Of the file's bytes."""
    prompts: tuple[Prompt, ...]


def bundled_suites() -> list[str]:
    return sorted(file.stem for file in SUITES.glob("*.jsonl"))


def load_suite(wanted: str) -> Suite:
    """A bundled suite by name, or a file of prompts.

    UsageError if it does not exist; ProfileError, with `file:line`, for a line that cannot be
    used, and for a file without any prompt.
    """
    file = SUITES / f"{wanted}.jsonl" if wanted in bundled_suites() else Path(wanted)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"no suite {wanted!r}: {error.strerror}",
            mend=f"there is {', '.join(bundled_suites())}, or name a file of prompts",
        ) from error
    prompts: dict[str, Prompt] = {}
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{file}:{number}"
        prompt = _prompt(line, where, default_id=str(len(prompts) + 1))
        if prompt.id in prompts:
            raise ProfileError(f"a second prompt {prompt.id!r}", where=where, mend="rename one")
        prompts[prompt.id] = prompt
    if not prompts:
        raise ProfileError(
            "no prompt in this suite", where=str(file), mend='write lines like {"prompt": "..."}'
        )
    name = wanted if file.parent == SUITES else file.stem
    return Suite(name, file, hashlib.sha256(content).hexdigest(), tuple(prompts.values()))


def _prompt(line: bytes, where: str, default_id: str) -> Prompt:
    try:
        found = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise ProfileError(f"not UTF-8: {error.reason}", where=where) from error
    except json.JSONDecodeError as error:
        raise ProfileError(
            f"not JSON: {error.msg}",
            where=f"{where}:{error.colno}",
            mend='a line is an object like {"prompt": "..."}',
        ) from error
    except RecursionError as error:
        raise ProfileError("nested too deeply", where=where) from error
    if not isinstance(found, dict):
        raise ProfileError("not an object", where=where, mend='write {"prompt": "..."}')
    for key, value in found.items():
        if key not in _KEYS:
            raise ProfileError(
                f"unknown key {key!r}", where=where, mend=f"known are {', '.join(_KEYS)}"
            )
        if not isinstance(value, _KEYS[key]):
            kind = "an object" if _KEYS[key] is dict else "a text"
            raise ProfileError(f"{key!r} is not {kind}", where=where)
    for key in ("prompt", "id"):
        text = found.get(key, default_id if key == "id" else "")
        if not text.strip():
            raise ProfileError(f"{key!r} is empty or missing", where=where)
    return Prompt(
        id=found.get("id", default_id),
        text=found["prompt"],
        family=found.get("family", ""),
        reference=_reference(found.get("reference", {}), where),
        reference_source=found.get("reference_source", ""),
    )


def _reference(found: Mapping[str, Any], where: str) -> Mapping[str, float]:
    for arm, rate in found.items():
        number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if not number or not math.isfinite(rate) or rate <= 0:
            raise ProfileError(f"'reference' of {arm} is not a rate in tok/s", where=where)
    return dict(found)
