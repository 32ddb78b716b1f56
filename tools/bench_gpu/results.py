"""Everything that was measured, written as it comes."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ddtree_ops_cli.bench.record import write_whole
from ddtree_ops_cli.errors import DdtreeError

from .report import markdown

Value = TypeVar("Value")


@dataclass(slots=True)
class Results:
    """The document of a run. Its parts come from several threads."""

    folder: Path
    limit_s: float
    document: dict[str, Any] = field(default_factory=dict)
    _begin: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def left_s(self) -> float:
        return self._begin + self.limit_s - time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._begin:6.1f} s] {text}", file=sys.stderr, flush=True)

    def put(self, section: str, title: str, value: Any) -> None:
        """Keep `value` as `document[section][title]`, and write the files anew."""
        with self._lock:
            self.document.setdefault(section, {})[title] = value
            text = json.dumps(self.document, indent=1, allow_nan=False)
            write_whole(self.folder / "bench-gpu.json", text + "\n")
            write_whole(self.folder / "bench-gpu.md", markdown(self.document))

    def attempt(self, title: str, do: Callable[[], Value], *, needs_s: float = 0.0) -> Value | None:
        """What `do` returns; None if it fails or would take too long, which is recorded.

        A failure of one part ends no other.
        """
        if self.left_s() < needs_s:
            why = f"not run: it takes about {needs_s:.0f} s, and {self.left_s():.0f} s are left"
            self._failed(title, why)
            return None
        begin = time.monotonic()
        self.say(f"{title} ...")
        try:
            value = do()
        except DdtreeError as error:
            self._failed(title, str(error))
            return None
        self.say(f"{title}: done in {time.monotonic() - begin:.1f} s")
        self.put("seconds", title, round(time.monotonic() - begin, 1))
        return value

    def _failed(self, title: str, why: str) -> None:
        self.say(f"{title}: FAILED: {why}")
        self.put("failures", title, why)
