"""One answer with its times: how a stream of chunks becomes a Timing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..engine_api.acceptance import Acceptance
from ..engine_api.answers import Chunk
from ..engine_api.client import EngineClient
from ..errors import Unhealthy
from .measurement import Timing, Twin

Clock = Callable[[], float]
"""Seconds on the clock of `Chunk.arrived`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What all requests of a run have in common."""

    max_tokens: int
    temperature: float
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request."""

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class Arm:
    """One of the two services that are compared."""

    name: str
    """`tree`, `linear` or `plain`."""
    title: str
    engine: EngineClient
    served_name: str


def ask_streamed(arm: Arm, prompt: str, shape: Shape, *, seed: int, clock: Clock) -> Timing:
    """The measured request: a streamed chat, because SGLang itself applies the chat template."""
    options = dict(shape.options) if shape.greedy else {**shape.options, "seed": seed}
    started = clock()
    chunks = arm.engine.chat_stream(
        prompt,
        model=arm.served_name,
        max_tokens=shape.max_tokens,
        temperature=shape.temperature,
        **options,
    )
    try:
        return timing(chunks, started)
    except ValueError as error:
        raise Unhealthy(str(error), where=arm.title) from error


def ask_whole(arm: Arm, prompt: str, shape: Shape, prompt_id: str, *, seed: int) -> Twin:
    """The same request at once: SGLang 0.5.17 gives meta_info and token ids only so."""
    options = dict(shape.options) if shape.greedy else {**shape.options, "seed": seed}
    answer = arm.engine.chat(
        prompt,
        model=arm.served_name,
        max_tokens=shape.max_tokens,
        temperature=shape.temperature,
        **options,
    )
    return Twin(
        arm=arm.name,
        prompt=prompt_id,
        token_ids=answer.token_ids,
        prompt_tokens=answer.prompt_tokens,
        tokens=answer.completion_tokens,
        acceptance=Acceptance.of(answer.meta),
        text=answer.text,
    )


def timing(chunks: Iterable[Chunk], started: float) -> Timing:
    """Fold a chat stream. ValueError for one that does not count its tokens as it goes.

    SGLang sends a chunk where the text grew, with the tokens so far; then one with the reason of
    the end, then the usage. The last tokens may have no text (an end-of-sequence token): they
    arrived with the reason.
    """
    text: list[str] = []
    counted: list[tuple[float, int]] = []
    ended: tuple[float, str] | None = None
    tokens = prompt_tokens = None
    for chunk in chunks:
        text.append(chunk.text)
        if ended is not None:
            tokens = tokens if chunk.completion_tokens is None else chunk.completion_tokens
            prompt_tokens = chunk.prompt_tokens or prompt_tokens
            continue
        if chunk.completion_tokens:
            counted.append((chunk.arrived, chunk.completion_tokens))
        elif chunk.text:
            raise ValueError(
                "its stream does not count tokens (stream_options.continuous_usage_stats)"
            )
        if chunk.finish_reason is not None:
            ended = (chunk.arrived, chunk.finish_reason)
    if ended is None or tokens is None or prompt_tokens is None:
        raise ValueError("its stream ended without the usage")
    if tokens == 0:
        raise ValueError("the answer is empty")
    end, finish_reason = ended
    # An answer whose tokens have no text at all is known only by its end.
    first_at, first_tokens = counted[0] if counted else (end, tokens)
    last_at = next((at for at, so_far in counted if so_far >= tokens), end)
    return Timing(
        ttft_s=first_at - started,
        first_tokens=first_tokens,
        decode_s=last_at - first_at,
        tokens=tokens,
        prompt_tokens=prompt_tokens,
        finish_reason=finish_reason,
        text="".join(text),
    )
