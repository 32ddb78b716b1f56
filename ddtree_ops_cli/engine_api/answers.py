"""What an engine answers, as small records, and how its words are found in an error.

The shapes are those of SGLang 0.5.17: srt/entrypoints/openai/protocol.py and the native API of
srt/entrypoints/http_server.py. A reader raises ValueError for an answer of another shape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LONGEST_QUOTE = 300
"""Characters of a server's own words that an error line repeats."""


@dataclass(frozen=True, slots=True)
class Health:
    """What a probe found: `status` is the HTTP status, None when nothing answered."""

    status: int | None
    detail: str = ""

    @property
    def ready(self) -> bool:
        return self.status == 200


@dataclass(frozen=True, slots=True)
class Model:
    id: str
    context_length: int | None


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """`/server_info`: the version, the arguments the server runs with, its inner state."""

    version: str
    arguments: Mapping[str, Any]
    """The whole answer: SGLang spreads its arguments over the top level."""
    internal_states: tuple[Mapping[str, Any], ...]

    @property
    def speculative_algorithm(self) -> str | None:
        """`DFLASH`, `DDTREE`, ...; None for plain decoding."""
        value = self.arguments.get("speculative_algorithm")
        return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished answer, of /generate or of chat."""

    text: str
    token_ids: tuple[int, ...]
    """Tokens of the answer, end-of-sequence token included; empty when the engine omits them."""
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    prompt_token_ids: tuple[int, ...] = ()
    """Tokens of the prompt, template included; empty when the engine omits them."""
    model: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    """`meta_info` as the server wrote it; empty when it wrote none."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of a stream. The last one carries the usage and no text."""

    text: str
    """What this event adds to the answer."""
    completion_tokens: int | None
    """Tokens of the answer up to this event; None when the event does not say."""
    arrived: float
    """`time.perf_counter()` when the event was read, in seconds."""
    prompt_tokens: int | None = None
    finish_reason: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


def models(body: Any) -> tuple[Model, ...]:
    return tuple(
        Model(id=_text(card, "id"), context_length=card.get("max_model_len"))
        for card in _list(_mapping(body), "data")
    )


def server_info(body: Any) -> ServerInfo:
    arguments = _mapping(body)
    states = arguments.get("internal_states")
    return ServerInfo(
        version=_text(arguments, "version"),
        arguments=arguments,
        internal_states=tuple(states) if isinstance(states, list) else (),
    )


def generation(body: Any) -> Completion:
    """An answer of /generate to one prompt."""
    answer = _mapping(body)
    meta = _mapping(answer.get("meta_info"))
    finish = meta.get("finish_reason")
    return Completion(
        text=_text(answer, "text"),
        token_ids=tuple(answer.get("output_ids") or ()),
        prompt_tokens=_int(meta, "prompt_tokens"),
        completion_tokens=_int(meta, "completion_tokens"),
        finish_reason=_mapping(finish).get("type", "") if finish else "",
        meta=meta,
    )


def chat_completion(body: Any) -> Completion:
    answer = _mapping(body)
    choices = _list(answer, "choices")
    if not choices:
        raise ValueError("no choice in the answer")
    choice = _mapping(choices[0])
    usage = _mapping(answer.get("usage"))
    return Completion(
        text=_mapping(choice.get("message")).get("content") or "",
        token_ids=tuple(choice.get("token_ids") or ()),
        prompt_tokens=_int(usage, "prompt_tokens"),
        completion_tokens=_int(usage, "completion_tokens"),
        finish_reason=choice.get("finish_reason") or "",
        prompt_token_ids=tuple(choice.get("prompt_token_ids") or ()),
        model=answer.get("model"),
        meta=choice.get("meta_info") or {},
    )


def chat_chunk(body: Any, arrived: float) -> Chunk:
    event = _mapping(body)
    usage = event.get("usage") or {}
    choices = event.get("choices") or [{}]
    choice = _mapping(choices[0])
    return Chunk(
        text=(choice.get("delta") or {}).get("content") or "",
        completion_tokens=usage.get("completion_tokens"),
        arrived=arrived,
        prompt_tokens=usage.get("prompt_tokens"),
        finish_reason=choice.get("finish_reason"),
    )


def generation_chunk(body: Any, arrived: float, already: int) -> Chunk:
    """An event of a streamed /generate, whose text repeats the `already` characters sent before."""
    event = _mapping(body)
    meta = _mapping(event.get("meta_info"))
    finish = meta.get("finish_reason")
    return Chunk(
        text=_text(event, "text")[already:],
        completion_tokens=_int(meta, "completion_tokens"),
        arrived=arrived,
        prompt_tokens=meta.get("prompt_tokens"),
        finish_reason=_mapping(finish).get("type") if finish else None,
        meta=meta,
    )


def words(body: str) -> str:
    """The server's own sentence in the body of an error, as one line.

    SGLang has several shapes: `{"error": {"message": ...}}` (native API, streams),
    `{"object": "error", "message": ...}` (OpenAI API), `{"error": "..."}`, `{"detail": ...}`
    (routing) and plain text.
    """
    try:
        found = json.loads(body)
    except ValueError:
        found = body
    while isinstance(found, dict):
        found = next(
            (found[key] for key in ("error", "message", "detail") if found.get(key)), str(found)
        )
    line = " ".join(str(found).split())
    return line if len(line) <= LONGEST_QUOTE else line[: LONGEST_QUOTE - 1] + "…"


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {type(value).__name__}")
    return value


def _list(found: Mapping[str, Any], key: str) -> list[Any]:
    value = found.get(key)
    if not isinstance(value, list):
        raise ValueError(f"no list {key!r} in the answer")
    return value


def _text(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    if not isinstance(value, str):
        raise ValueError(f"no text {key!r} in the answer")
    return value


def _int(found: Mapping[str, Any], key: str) -> int:
    value = found.get(key)
    if not isinstance(value, int):
        raise ValueError(f"no number {key!r} in the answer")
    return value
