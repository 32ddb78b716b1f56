"""One client for the HTTP surface that SGLang and the lab engine share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from ..errors import DdtreeError, Unhealthy
from . import answers, metrics
from .answers import Chunk, Completion, Health, Model, ServerInfo, words

CONNECT_SECONDS = 5.0
PROBE_SECONDS = 25.0
"""A probe answers within SGLang's SGLANG_HEALTH_CHECK_TIMEOUT (20 s): waiting less piles probes up
(SG#35884)."""

Answer = TypeVar("Answer")


class EngineClient:
    """Talks to one engine; a context manager.

    `timeout` is how many seconds an answer may stay silent: a whole answer, or the pause between
    two events of a stream. Every method but the probes raises Unhealthy when the engine does not
    answer, breaks off, or answers 5xx or nonsense, and DdtreeError when it refuses the request
    (4xx): one line with the endpoint, the status and the server's own words.
    """

    def __init__(self, base_url: str, *, timeout: float = 300.0) -> None:
        self.base_url = base_url.rstrip("/")
        # No proxy from the environment: the engine is on this machine or behind our own tunnel.
        self._http = httpx.Client(
            base_url=self.base_url,
            timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS),
            trust_env=False,
            # Reading the certificates of the world takes 0.1 s that plain HTTP need not pay.
            verify=self.base_url.startswith("https:"),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def health(self) -> Health:
        """Whether the HTTP server answers and its model is loaded. Never raises."""
        return self._probe("/health")

    def health_generate(self) -> Health:
        """Whether the engine generates a token now. Never raises."""
        return self._probe("/health_generate")

    def models(self) -> tuple[Model, ...]:
        return self._get("/v1/models", answers.models)

    def server_info(self) -> ServerInfo:
        return self._get("/server_info", answers.server_info)

    def flush_cache(self, *, wait: float = 0.0) -> bool:
        """Empty the prefix cache. False when the engine is still busy after `wait` seconds."""
        endpoint = "/flush_cache"
        response = self._send("POST", endpoint, params={"timeout": wait} if wait else None)
        if response.status_code == 400:
            return False
        self._accept(endpoint, response)
        return True

    def metrics(self) -> metrics.Metrics:
        endpoint = "/metrics"
        # SGLang mounts its collector, which redirects /metrics to /metrics/.
        response = self._send("GET", endpoint, follow_redirects=True)
        self._accept(endpoint, response)
        return metrics.parse(response.text)

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_new_tokens: int,
        temperature: float = 0.0,
        **sampling: Any,
    ) -> Completion:
        """Continue a text or token ids as they are, without a chat template.

        `sampling` are further sampling_params of SGLang by their own names (top_p, top_k, stop,
        stop_token_ids, ignore_eos, sampling_seed, ...).
        """
        body = _generate_body(prompt, max_new_tokens, temperature, sampling)
        return self._post("/generate", body, answers.generation)

    def generate_stream(
        self,
        prompt: str | Sequence[int],
        *,
        max_new_tokens: int,
        temperature: float = 0.0,
        **sampling: Any,
    ) -> Iterator[Chunk]:
        """As `generate`, event by event; the meta of the last one holds the spec_* figures."""
        body = _generate_body(prompt, max_new_tokens, temperature, sampling)
        already = 0
        for event, arrived in self._events("/generate", {**body, "stream": True}):
            chunk = self._read("/generate", event, answers.generation_chunk, arrived, already)
            already += len(chunk.text)
            yield chunk

    def chat(
        self,
        messages: str | Sequence[Mapping[str, str]],
        *,
        model: str,
        max_tokens: int,
        temperature: float = 0.0,
        **options: Any,
    ) -> Completion:
        """One chat answer with its meta_info. A string is a single message of the user.

        `options` are further fields of the request (top_p, stop, seed, chat_template_kwargs, ...).
        """
        body = _chat_body(messages, model, max_tokens, temperature, options)
        # return_meta_info is what 0.5.13-0.5.18 know; return_token_ids came beside it.
        body |= {"return_meta_info": True, "return_token_ids": True}
        return self._post("/v1/chat/completions", body, answers.chat_completion)

    def chat_stream(
        self,
        messages: str | Sequence[Mapping[str, str]],
        *,
        model: str,
        max_tokens: int,
        temperature: float = 0.0,
        **options: Any,
    ) -> Iterator[Chunk]:
        """As `chat`, event by event, each with the count of tokens so far where SGLang gives it.

        SGLang refuses return_meta_info on a stream: acceptance comes from /metrics instead.
        """
        endpoint = "/v1/chat/completions"
        body = _chat_body(messages, model, max_tokens, temperature, options) | {
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        for event, arrived in self._events(endpoint, body):
            yield self._read(endpoint, event, answers.chat_chunk, arrived)

    def _probe(self, endpoint: str) -> Health:
        try:
            response = self._http.get(endpoint, timeout=PROBE_SECONDS)
        except httpx.HTTPError as error:
            return Health(status=None, detail=_cause(error))
        return Health(status=response.status_code, detail=words(response.text))

    def _get(self, endpoint: str, read: Callable[[Any], Answer]) -> Answer:
        response = self._send("GET", endpoint)
        self._accept(endpoint, response)
        return self._read(endpoint, response.text, read)

    def _post(self, endpoint: str, body: dict[str, Any], read: Callable[[Any], Answer]) -> Answer:
        response = self._send("POST", endpoint, json=body)
        self._accept(endpoint, response)
        return self._read(endpoint, response.text, read)

    def _send(self, method: str, endpoint: str, **request: Any) -> httpx.Response:
        try:
            return self._http.request(method, endpoint, **request)
        except httpx.HTTPError as error:
            raise self._silent(endpoint, error) from error

    def _events(self, endpoint: str, body: dict[str, Any]) -> Iterator[tuple[str, float]]:
        """The `data:` lines of a stream of server-sent events, up to `[DONE]`, with their times."""
        try:
            with self._http.stream("POST", endpoint, json=body) as response:
                if response.is_error:
                    response.read()
                self._accept(endpoint, response)
                for line in response.iter_lines():
                    arrived = time.perf_counter()
                    if not line.startswith("data:"):
                        continue
                    data = line.removeprefix("data:").strip()
                    if data == "[DONE]":
                        return
                    yield data, arrived
        except httpx.HTTPError as error:
            raise self._silent(endpoint, error) from error
        raise Unhealthy("the stream ended before [DONE]", where=self._where(endpoint))

    def _accept(self, endpoint: str, response: httpx.Response) -> None:
        if response.is_success:
            return
        what = f"{response.status_code} {response.reason_phrase}: {words(response.text)}"
        kind = DdtreeError if response.is_client_error else Unhealthy
        raise kind(what, where=self._where(endpoint))

    def _read(
        self, endpoint: str, text: str, read: Callable[..., Answer], *arguments: Any
    ) -> Answer:
        """Parse one JSON answer or event; an error inside a stream has status 200 around it."""
        try:
            body = json.loads(text)
            if isinstance(body, dict) and body.get("error"):
                raise Unhealthy(words(text), where=self._where(endpoint))
            answer = read(body, *arguments)
        except ValueError as error:
            raise Unhealthy(
                f"an answer that this tool cannot read: {error}", where=self._where(endpoint)
            ) from error
        if isinstance(answer, Completion | Chunk) and answer.finish_reason == "abort":
            reason = answer.meta.get("finish_reason", {}).get("message", "it gave no reason")
            raise Unhealthy(
                f"the engine aborted the request: {reason}", where=self._where(endpoint)
            )
        return answer

    def _silent(self, endpoint: str, error: httpx.HTTPError) -> Unhealthy:
        return Unhealthy(f"no answer: {_cause(error)}", where=self._where(endpoint))

    def _where(self, endpoint: str) -> str:
        return self.base_url + endpoint


def _generate_body(
    prompt: str | Sequence[int], max_new_tokens: int, temperature: float, sampling: dict[str, Any]
) -> dict[str, Any]:
    source = {"text": prompt} if isinstance(prompt, str) else {"input_ids": list(prompt)}
    # Always the temperature: a server's default comes from the model's generation_config.json.
    chosen = {"max_new_tokens": max_new_tokens, "temperature": temperature, **sampling}
    return {**source, "sampling_params": chosen}


def _chat_body(
    messages: str | Sequence[Mapping[str, str]],
    model: str,
    max_tokens: int,
    temperature: float,
    options: dict[str, Any],
) -> dict[str, Any]:
    turns = (
        [{"role": "user", "content": messages}]
        if isinstance(messages, str)
        else [dict(turn) for turn in messages]
    )
    return {
        "model": model,
        "messages": turns,
        "max_tokens": max_tokens,
        "temperature": temperature,
        **options,
    }


def _cause(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return f"no connection within {CONNECT_SECONDS:g} s"
    if isinstance(error, httpx.TimeoutException):
        return "nothing within the time allowed"
    return " ".join(str(error).split()) or type(error).__name__
