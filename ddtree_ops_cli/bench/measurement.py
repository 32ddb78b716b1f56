"""What is recorded of every answer."""

from __future__ import annotations

from dataclasses import dataclass

from ..engine_api.acceptance import Acceptance


@dataclass(frozen=True, slots=True)
class Timing:
    """One streamed answer. Times in seconds; tokens as the server's usage counts them."""

    ttft_s: float
    """From sending the request to the first chunk that carries tokens."""
    first_tokens: int
    """Tokens of that chunk: the prefill's one, and those of verify steps that came with it."""
    decode_s: float
    """From the first chunk to the last token."""
    tokens: int
    """Of the whole answer, end-of-sequence token included."""
    prompt_tokens: int
    finish_reason: str
    text: str

    @property
    def decode_tok_s(self) -> float | None:
        """Tokens per second after the first chunk; None where nothing came after it."""
        after = self.tokens - self.first_tokens
        return after / self.decode_s if after > 0 and self.decode_s > 0 else None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One answer of a round, with what the server's counters moved meanwhile."""

    arm: str
    prompt: str
    position: int
    """0 for the arm that went first in its pair, 1 for the other."""
    started_at: float
    """Seconds since the epoch."""
    timing: Timing
    verify_steps: int | None
    """None: the counters moved by more than this request, or not by it."""
    off_spine: int | None
    cached_tokens: int | None
    """Prompt tokens that came from the prefix cache."""

    @property
    def acceptance(self) -> Acceptance | None:
        """Acceptance as far as counters tell it: what was proposed, they do not.

        A verify step emits its accepted drafts and one bonus token, the prefill one token.
        """
        if not self.verify_steps:
            return None
        return Acceptance(
            verify_steps=self.verify_steps,
            correct_drafts=max(self.timing.tokens - 1 - self.verify_steps, 0),
            proposed_drafts=0,
            off_spine=self.off_spine,
        )

    @property
    def step_ms(self) -> float | None:
        """Milliseconds per verify step.

        By the rate and the tokens per step, because a first chunk of several tokens hides some
        steps from the decode time.
        """
        rate = self.timing.decode_tok_s
        if rate is None or not self.verify_steps:
            return None
        return 1000 * (self.timing.tokens - 1) / self.verify_steps / rate


@dataclass(frozen=True, slots=True)
class Round:
    index: int
    measurements: tuple[Measurement, ...]
    """In the order in which they ran."""
    disturbed: tuple[str, ...]
    """Why this round does not count; empty if nothing else happened on either arm."""
    load: float
    """Load average over one minute of the machine that measures, at the end of the round."""


@dataclass(frozen=True, slots=True)
class Twin:
    """The same request not streamed, once per prompt and arm: only there are ids and meta_info."""

    arm: str
    prompt: str
    token_ids: tuple[int, ...]
    prompt_tokens: int
    tokens: int
    acceptance: Acceptance | None
    text: str
