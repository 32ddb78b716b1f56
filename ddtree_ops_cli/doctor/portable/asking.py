"""Commands and child processes that may fail, hang or die without taking the doctor along."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

ABSENT = 127
LATE = 124


class Answer(NamedTuple):
    exit_code: int
    """127: there is no such command; 124: it did not end in time."""
    out: str
    err: str

    @property
    def said(self) -> str:
        return " ".join((self.err or self.out).split())[-600:]


def ask(
    argv: Sequence[str],
    *,
    timeout_s: float = 15.0,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
) -> Answer:
    """Run a command to its end, or kill it and what it started."""
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C", **(environment or {})},
        )
    except (FileNotFoundError, NotADirectoryError):
        return Answer(ABSENT, "", f"there is no {argv[0]}")
    except OSError as error:
        return Answer(126, "", f"{argv[0]}: {error.strerror}")
    try:
        out, err = child.communicate(stdin.encode(), timeout=timeout_s)
        code = child.returncode
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        return Answer(LATE, _text(out), f"did not end within {timeout_s:g} s")
    return Answer(code, _text(out), _text(err))


def ask_python(
    program: str,
    *,
    timeout_s: float = 120.0,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run a program in a new Python: the JSON object in its last line, or {"unknown": why}."""
    answer = ask([sys.executable, "-c", program], timeout_s=timeout_s, environment=environment)
    lines = answer.out.strip().splitlines()
    if answer.exit_code == 0 and lines:
        try:
            found = json.loads(lines[-1])
        except ValueError:
            found = None
        if isinstance(found, dict):
            return found
    if answer.exit_code < 0:
        return {"unknown": f"it was ended by signal {-answer.exit_code}"}
    last = [line for line in answer.err.strip().splitlines() if line.strip()]
    said = last[-1].strip() if last else f"it said nothing (exit code {answer.exit_code})"
    return {"unknown": said[:600]}


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
