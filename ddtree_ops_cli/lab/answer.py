"""The answer to one prompt while it grows: its tokens, its text, why it ends, what was accepted.

The order of the checks and what is trimmed follow SGLang 0.5.17 (`update_finish_state` in
srt/managers/schedule_batch.py, `trim_matched_stop` in srt/managers/detokenizer_manager.py). One
thing differs: SGLang checks a whole verify step at once, so that a step which reaches the limit of
tokens hides an earlier end of sequence in the same step; here each token is checked in its turn,
and the answer is the same however many tokens a step brings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .tokenizer import GrowingText, Tokenizer

if TYPE_CHECKING:
    from .asks import Ask
    from .decode import Step


@dataclass(frozen=True, slots=True)
class Counts:
    """What the verify steps of one request brought."""

    verify_steps: int = 0
    correct_drafts: int = 0
    off_spine_drafts: int = 0
    histogram: tuple[int, ...] = ()
    """How many steps accepted 0, 1, 2, ... drafts."""

    def plus(self, accepted: int, off_spine: int) -> Counts:
        histogram = list(self.histogram) + [0] * (accepted + 1 - len(self.histogram))
        histogram[accepted] += 1
        return Counts(
            self.verify_steps + 1,
            self.correct_drafts + accepted,
            self.off_spine_drafts + off_spine,
            tuple(histogram),
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An answer after some step."""

    text: str
    token_ids: tuple[int, ...]
    finish: Mapping[str, Any] | None
    """SGLang's `finish_reason` object; None while tokens are still to come."""
    counts: Counts


class Answer:
    def __init__(self, ask: Ask, tokenizer: Tokenizer, model_eos: frozenset[int]) -> None:
        self._ask = ask
        sampling = ask.sampling
        ends = frozenset() if sampling.ignore_eos else model_eos
        self._stop_tokens = ends | sampling.stop_token_ids
        self._tokens: list[int] = []
        self._growing = GrowingText(
            tokenizer, ask.prompt, skip_special_tokens=ask.skips_special_tokens
        )
        # Stop strings are looked for in the text with special tokens, whatever the client sees.
        self._searched = GrowingText(tokenizer, ask.prompt, skip_special_tokens=False)
        self._counts = Counts()
        self._text = ""
        self._finish: dict[str, Any] | None = None
        if sampling.max_new_tokens == 0:
            self._finish = {"type": "length", "length": 0}

    @property
    def finished(self) -> bool:
        return self._finish is not None

    def take(self, step: Step, *, verified: bool) -> None:
        """Add a step's tokens up to where the answer ends; `verified`: not the prefill."""
        if verified:
            self._counts = self._counts.plus(step.accepted, step.off_spine)
        for token in step.tokens:
            self._push(token)
            if self.finished:
                return

    def end(self) -> None:
        """The engine has no more tokens: the context is full."""
        if not self.finished:
            self._close({"type": "length", "length": len(self._tokens)})

    def abort(self, message: str, status: int | None = None) -> None:
        if not self.finished:
            self._text = self._growing.finish()
            self._finish = {
                "type": "abort",
                "message": message,
                "status_code": status,
                "err_type": None,
            }

    def snapshot(self) -> Snapshot:
        text = self._text if self.finished else self._without_begun_stop(self._growing.text)
        return Snapshot(text, tuple(self._tokens), self._finish, self._counts)

    def _push(self, token: int) -> None:
        self._tokens.append(token)
        limit = self._ask.sampling.max_new_tokens
        ends_here = token in self._stop_tokens
        if len(self._tokens) >= limit:
            self._growing.push(token)
            self._close({"type": "length", "length": limit})
        elif (found := self._stop_string(token)) is not None:
            self._growing.push(token)
            self._close({"type": "stop", "matched": found})
        else:
            if not (ends_here and self._ask.trims_stop):
                self._growing.push(token)
            if ends_here:
                self._close({"type": "stop", "matched": token})

    def _stop_string(self, token: int) -> str | None:
        if not self._ask.stop:
            return None
        self._searched.push(token)
        return next((text for text in self._ask.stop if text in self._searched.text), None)

    def _close(self, finish: dict[str, Any]) -> None:
        self._finish = finish
        self._text = self._growing.finish()
        matched = finish.get("matched")
        if isinstance(matched, str) and matched in self._text:
            keep = 0 if self._ask.trims_stop else len(matched)
            self._text = self._text[: self._text.index(matched) + keep]

    def _without_begun_stop(self, text: str) -> str:
        """Hold back an end of `text` that may turn out to begin a stop string."""
        for stop in self._ask.stop:
            for length in range(min(len(stop) - 1, len(text)), 0, -1):
                if text.endswith(stop[:length]):
                    return text[:-length]
        return text
