"""What a client may ask of the lab server: SGLang's fields, their types and their limits.

Field names and defaults are those of SGLang 0.5.17 (under srt: entrypoints/openai/protocol.py,
managers/io_struct.py, sampling/sampling_params.py). Fields that SGLang does not know are ignored,
as it does; lab.asks refuses those that it knows and the lab does not serve.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

UNPARSED = "Bad Request"
"""The error type of a body that is not what the endpoint takes."""

DEFAULT_NEW_TOKENS = 128
"""Of /generate; a completion has 16, a chat as many as fit."""


class RefusedError(Exception):
    """A request that the server does not serve: HTTP 400 unless `status` says otherwise."""

    def __init__(self, message: str, *, status: int = 400, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class Body(BaseModel):
    # Lax like SGLang's own models: "5" is a number, an unknown field is nothing.
    model_config = ConfigDict(extra="ignore")


class StreamOptions(Body):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class TextPart(Body):
    type: Literal["text"]
    text: str


class Message(Body):
    role: Literal["system", "user", "assistant", "tool", "function", "developer"]
    content: str | list[TextPart] | None = None
    tool_calls: list[Any] | None = None

    def plain(self) -> dict[str, str]:
        content = self.content or ""
        if isinstance(content, list):
            content = " ".join(part.text for part in content)
        return {"role": self.role, "content": content}


class SamplingOptions(Body):
    """What the three kinds of request share."""

    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    no_stop_trim: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True


class ChatRequest(SamplingOptions):
    messages: list[Message]
    model: str = "default"
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    input_ids: list[int] | None = None
    rid: str | None = None
    return_token_ids: bool = False
    return_prompt_token_ids: bool = False
    return_meta_info: bool = False


class CompletionRequest(SamplingOptions):
    prompt: list[int] | list[list[int]] | str | list[str]
    model: str = "default"
    max_tokens: int = Field(default=16, gt=0)
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    rid: str | None = None
    return_token_ids: bool = False


class NativeSampling(SamplingOptions):
    """`sampling_params` of /generate."""

    max_new_tokens: int | None = DEFAULT_NEW_TOKENS
    temperature: float | None = 1.0
    top_p: float | None = 1.0
    top_k: int | None = -1
    sampling_seed: int | None = None


class GenerateRequest(Body):
    text: str | list[str] | None = None
    input_ids: list[int] | list[list[int]] | None = None
    sampling_params: NativeSampling | list[NativeSampling] | None = None
    stream: bool = False
    rid: str | list[str] | None = None
    return_prompt_token_ids: bool = False

    @property
    def source(self) -> str | list[str] | list[int] | list[list[int]] | None:
        """The prompt or prompts. With both text and tokens, SGLang answers the tokens."""
        return self.text if self.input_ids is None else self.input_ids

    @property
    def batched(self) -> bool:
        """A list of prompts has a list of answers, however short it is."""
        source = self.source
        return isinstance(source, list) and bool(source) and not isinstance(source[0], int)


Parsed = TypeVar("Parsed", bound=BaseModel)


async def json_object(request: Request) -> dict[str, Any]:
    """The body of a request. Raises RefusedError."""
    content_type = request.headers.get("content-type", "").lower().partition(";")[0].strip()
    if content_type != "application/json":
        raise RefusedError("content-type: only application/json is taken", kind=UNPARSED)
    try:
        text = (await request.body()).decode()
        body = json.loads(text)
        if r"\ud" in text.lower():
            # Half a surrogate pair passes for text in Python and nowhere else.
            json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the body is not JSON: {error}", kind=UNPARSED) from error
    if not isinstance(body, dict):
        raise RefusedError("the body is not a JSON object", kind=UNPARSED)
    return body


def parsed(shape: type[Parsed], body: Mapping[str, Any]) -> Parsed:
    """The body as `shape`. Raises RefusedError with the field and what is wrong with it."""
    try:
        return shape.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]["loc"]
        field = str(first[0]) if first else "body"
        same = [one for one in error.errors() if one["loc"][:1] == first[:1]]
        wrong = "; or ".join(dict.fromkeys(one["msg"] for one in same))
        # SGLang takes sampling_params apart later than the rest, with the other kind of error.
        kind = "BadRequestError" if field == "sampling_params" else UNPARSED
        raise RefusedError(f"{field}: {wrong}", kind=kind) from error
