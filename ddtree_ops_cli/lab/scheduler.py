"""One engine, one thread, one request at a time; the others wait in the order of their arrival."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Protocol

from ..errors import DdtreeError
from .answer import Answer, Counts, Snapshot
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .asks import Ask
    from .decode import Sampling, Step

log = logging.getLogger(__name__)


class Engine(Protocol):
    """What the server needs of lab.decode.Engine."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def context_length(self) -> int: ...
    @property
    def eos_token_ids(self) -> frozenset[int]: ...
    def generate(self, prompt: Sequence[int], sampling: Sampling) -> Iterator[Step]: ...


@dataclass(slots=True, eq=False)
class Job:
    """A prompt on its way through the engine. `deliver` is called from the engine's thread."""

    id: str
    ask: Ask
    deliver: Callable[[Snapshot], None]
    streams: bool = False
    """The client wants every step; otherwise only the end is delivered."""
    probe: bool = False
    """A health probe: it keeps nobody from flushing and is in no count."""
    abandoned: bool = False
    # When, in seconds since 1970; 0 is not yet.
    received: float = field(default_factory=time.time)
    started: float = 0.0
    first_token: float = 0.0
    finished: float = 0.0
    sent: float = 0.0
    """When the first piece of the answer was written for the client."""


@dataclass(slots=True)
class Totals:
    """Counters since the start; they only grow."""

    requests: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    """By whether the request streamed, as the next two."""
    prompt_tokens: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    generation_tokens: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    aborted: int = 0
    verify_steps: int = 0
    correct_drafts: int = 0
    off_spine_drafts: int = 0


class Scheduler:
    """Owns the engine. Its public methods may be called from any thread."""

    def __init__(self, *, speculative: bool, log_steps: IO[str] | None = None) -> None:
        self._speculative = speculative
        self._log_steps = log_steps
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._closing = False
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._engine: Engine | None = None
        self._tokenizer: Tokenizer | None = None
        self.totals = Totals()
        self.since_flush = Counts()
        """Acceptance since the last flush of the cache."""
        self.last_step = 0.0
        """`time.monotonic()` of the engine's latest step."""
        self.last_throughput = 0.0
        """Tokens per second of the latest answer, prefill left out."""

    def start(
        self,
        load: Callable[[], tuple[Engine, Tokenizer]],
        on_ready: Callable[[Engine, Tokenizer], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Load in the engine's thread, call one of the two, and serve."""
        self._thread = threading.Thread(
            target=self._live, args=(load, on_ready, on_failure), name="engine", daemon=True
        )
        self._thread.start()

    def submit(self, job: Job) -> None:
        with self._change:
            if not self._closing:
                self._waiting.append(job)
                self._change.notify_all()
                return
        self._end(job, None, "the server is shutting down", 503)

    def abandon(self, job: Job) -> None:
        """Drop a job whose client has gone; after its end this does nothing."""
        with self._change:
            known = job is self._running or job in self._waiting
            if known and not job.abandoned:
                job.abandoned = True
                self.totals.aborted += not job.probe
            if job in self._waiting:
                self._waiting.remove(job)

    def close(self, timeout: float = 0.0) -> None:
        """Abort what runs and waits; the engine stops after its current step."""
        with self._change:
            self._closing = True
            waiting, self._waiting = list(self._waiting), deque()
            self._change.notify_all()
        for job in waiting:
            self._end(job, None, "the server is shutting down", 503)
        if timeout and self._thread is not None:
            self._thread.join(timeout)

    @property
    def running(self) -> int:
        return int(self._running is not None and not self._running.probe)

    @property
    def waiting(self) -> int:
        with self._change:
            return sum(not job.probe for job in self._waiting)

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self._closing

    def flush(self) -> bool:
        """Forget the averages. False while a request runs or waits.

        There is no prefix cache to empty: every request starts from nothing.
        """
        with self._change:
            busy = self.running or any(not job.probe for job in self._waiting)
            if not busy:
                self.since_flush = Counts()
            return not busy

    def _live(
        self,
        load: Callable[[], tuple[Engine, Tokenizer]],
        on_ready: Callable[[Engine, Tokenizer], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        try:
            self._engine, self._tokenizer = load()
        except DdtreeError as error:
            on_failure(error)
            return
        except Exception as error:
            log.exception("loading failed")
            on_failure(error)
            return
        on_ready(self._engine, self._tokenizer)
        while (job := self._next()) is not None:
            self._run(job, self._engine, self._tokenizer)

    def _next(self) -> Job | None:
        with self._change:
            while not self._waiting and not self._closing:
                self._change.wait()
            if self._closing:
                return None
            self._running = self._waiting.popleft()
            return self._running

    def _run(self, job: Job, engine: Engine, tokenizer: Tokenizer) -> None:
        answer = Answer(job.ask, tokenizer, engine.eos_token_ids)
        try:
            self._steps(job, engine, answer)
        except Exception as error:
            log.exception("request %s failed", job.id)
            self._end(job, answer, f"the engine failed: {type(error).__name__}: {error}", 500)
            return
        if job.abandoned:
            self._end(job, answer, "the client has gone", None)
        elif self._closing and not answer.finished:
            self._end(job, answer, "the server is shutting down", 503)
        else:
            answer.end()
            self._end(job, answer)

    def _steps(self, job: Job, engine: Engine, answer: Answer) -> None:
        if answer.finished:
            return
        began = time.perf_counter()
        job.started = time.time()
        for index, step in enumerate(engine.generate(job.ask.prompt, job.ask.sampling)):
            self.last_step = time.monotonic()
            job.first_token = job.first_token or time.time()
            verified = self._speculative and index > 0
            answer.take(step, verified=verified)
            if verified and not job.probe:
                self.since_flush = self.since_flush.plus(step.accepted, step.off_spine)
                self._write_step(job, index, step, time.perf_counter() - began)
            began = time.perf_counter()
            if answer.finished or job.abandoned or self._closing:
                return
            if job.streams:
                job.deliver(answer.snapshot())

    def _end(
        self,
        job: Job,
        answer: Answer | None,
        abort: str | None = None,
        status: int | None = None,
    ) -> None:
        """Leave the engine first, then deliver: a client that has its answer finds it idle."""
        if abort is not None and answer is not None:
            answer.abort(abort, status)
        if answer is not None:
            last = answer.snapshot()
        else:
            finish = {"type": "abort", "message": abort, "status_code": status, "err_type": None}
            last = Snapshot("", (), finish, Counts())
        job.finished = time.time()
        with self._change:
            if self._running is job:
                self._running = None
            if not job.probe:
                self._count(job, last)
        job.deliver(last)

    def _count(self, job: Job, last: Snapshot) -> None:
        totals = self.totals
        totals.requests[job.streams] += 1
        totals.prompt_tokens[job.streams] += len(job.ask.prompt)
        totals.generation_tokens[job.streams] += len(last.token_ids)
        totals.verify_steps += last.counts.verify_steps
        totals.correct_drafts += last.counts.correct_drafts
        totals.off_spine_drafts += last.counts.off_spine_drafts
        decoding = job.finished - job.first_token
        if len(last.token_ids) > 1 and decoding > 0:
            self.last_throughput = (len(last.token_ids) - 1) / decoding

    def _write_step(self, job: Job, index: int, step: Step, seconds: float) -> None:
        """One JSON object a verify step, `seconds` after the step before it or the start.

        What the patch set for SGLang writes (steps_log.py) has the same names and is a list over
        the requests of a step: here always one.
        """
        if self._log_steps is None:
            return
        record: dict[str, Any] = {
            "rid": job.id,
            "verify_step": index,
            "proposed": step.proposed,
            "mode": "tree" if step.tree_at_least is None else "shadow-linear",
            "accepted": [step.accepted],
        }
        if step.tree_at_least is None:
            record["off_spine"] = [step.off_spine]
        else:
            record["tree_at_least"] = [step.tree_at_least]
        record["seconds"] = round(seconds, 6)
        self._log_steps.write(json.dumps(record) + "\n")
        self._log_steps.flush()
