"""What an engine's counters say about the requests of others, and about one of ours.

Names of SGLang 0.5.17 (srt/observability/metrics_collector.py). Its counters move when a request
ends; its gauges may lag one report behind, so a figure is believed once it has settled.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..engine_api.client import EngineClient
from ..errors import DdtreeError

SETTLE_S = 2.0
"""How long counters may lag behind an answer, and gauges behind the end of a batch."""
WATCH_S = 1.0
"""How long a service is watched before it is called idle."""
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Counters:
    requests: int
    tokens: int
    verify_steps: int
    off_spine: int | None
    """None: this engine does not count it."""
    cached_tokens: int
    running: int
    queued: int

    @property
    def busy(self) -> bool:
        return self.running + self.queued > 0


def read_counters(engine: EngineClient) -> Counters:
    """A counter that never moved has no sample in Prometheus' format: it stands at 0."""
    metrics = engine.metrics()

    def count(name: str) -> int:
        return round(metrics.total(f"sglang:{name}") or 0)

    off_spine = metrics.total("sglang:spec_off_spine_drafts_total")
    return Counters(
        requests=count("num_requests_total"),
        tokens=count("generation_tokens_total"),
        verify_steps=count("spec_verify_calls_total"),
        off_spine=None if off_spine is None else round(off_spine),
        cached_tokens=count("cached_tokens_total"),
        running=count("num_running_reqs"),
        queued=count("num_queue_reqs"),
    )


@dataclass(frozen=True, slots=True)
class Moved:
    """What the counters moved by since they were last looked at."""

    verify_steps: int | None
    off_spine: int | None
    cached_tokens: int | None
    strangers: str | None
    """What others did meanwhile, in words; the figures are theirs too then, and left out."""


class Watch:
    """Follows the counters of one engine; nothing between two looks escapes it."""

    def __init__(self, engine: EngineClient, *, settle_s: float = SETTLE_S) -> None:
        self._engine = engine
        self._settle_s = settle_s
        self._last = read_counters(engine)

    def skip(self, requests: int) -> None:
        """Forget what moved until now; `requests` of ours ended since the last look."""
        self._last = self._settled(requests)

    def account(self, tokens: int) -> Moved:
        """What moved since the last look, in which one request of ours with `tokens` ended."""
        before, now = self._last, self._settled(1)
        self._last = now
        others = now.requests - before.requests - 1
        if others > 0:
            strangers = f"{others} other request{'s' if others > 1 else ''}"
        elif others < 0:
            strangers = "the counters do not show the request"
        elif now.busy:
            strangers = f"{now.running} running and {now.queued} waiting requests of others"
        elif now.tokens - before.tokens != tokens:
            strangers = f"{now.tokens - before.tokens} tokens counted, {tokens} answered"
        else:
            return Moved(
                verify_steps=now.verify_steps - before.verify_steps,
                off_spine=_difference(before.off_spine, now.off_spine),
                cached_tokens=now.cached_tokens - before.cached_tokens,
                strangers=None,
            )
        return Moved(None, None, None, strangers)

    def _settled(self, requests: int) -> Counters:
        deadline = time.monotonic() + self._settle_s
        while True:
            now = read_counters(self._engine)
            counted = now.requests - self._last.requests >= requests
            if (counted and not now.busy) or time.monotonic() > deadline:
                return now
            time.sleep(_POLL_S)


def refuse_busy(engine: EngineClient, title: str) -> None:
    """DdtreeError if the engine serves anybody; its prefix cache is empty afterwards."""
    before = read_counters(engine)
    deadline = time.monotonic() + WATCH_S
    while time.monotonic() < deadline:
        time.sleep(_POLL_S)
        now = read_counters(engine)
        if now.requests != before.requests:
            raise _serving(title, f"{now.requests - before.requests} ended within {WATCH_S:g} s")
    # A gauge that is still up after the watch is no leftover of a batch that has ended.
    if now.busy:
        raise _serving(title, f"{now.running} running, {now.queued} waiting")
    if not engine.flush_cache():
        raise _serving(title, "its cache cannot be flushed")


def _serving(title: str, seen: str) -> DdtreeError:
    return DdtreeError(
        f"it is serving other requests: {seen}",
        where=title,
        mend="wait until it is idle, or measure all the same with --busy-ok",
    )


def _difference(before: int | None, now: int | None) -> int | None:
    # The counter appears with the first draft that it counts.
    return None if now is None else now - (before or 0)
