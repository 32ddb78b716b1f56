"""The routes of the lab server, each a request of lab.requests and an answer of lab.protocol."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from . import protocol
from .answer import Snapshot
from .asks import Ask, chat_ask, completion_asks, generate_asks, refuse_unserved
from .reception import ClientGoneError, Reception
from .requests import (
    UNPARSED,
    ChatRequest,
    CompletionRequest,
    GenerateRequest,
    RefusedError,
    StreamOptions,
    json_object,
    parsed,
)
from .service import Service
from .tokenizer import TemplateError

HEALTH_SECONDS = 20.0
"""How long /health_generate waits for a token, as SGLANG_HEALTH_CHECK_TIMEOUT of SGLang."""

Handler = Callable[[Request], Awaitable[Response]]


def application(service: Service) -> Starlette:
    """The ASGI application; everything but the probes and /metrics is 503 while loading."""
    routes = Routes(service)
    loaded = routes.loaded
    get, post = ["GET"], ["POST"]
    return Starlette(
        routes=[
            Route("/health", routes.health, methods=get),
            Route("/health_generate", routes.health_generate, methods=get),
            Route("/metrics", routes.metrics, methods=get),
            Route("/metrics/", routes.metrics, methods=get),
            Route("/v1/models", loaded(routes.models), methods=get),
            Route("/v1/models/{model:path}", loaded(routes.model), methods=get),
            Route("/model_info", loaded(routes.model_info), methods=get),
            Route("/get_model_info", loaded(routes.model_info), methods=get),
            Route("/server_info", loaded(routes.server_info), methods=get),
            Route("/get_server_info", loaded(routes.server_info), methods=get),
            Route("/flush_cache", loaded(routes.flush_cache), methods=["GET", "POST"]),
            Route("/generate", loaded(routes.generate), methods=["POST", "PUT"]),
            Route("/v1/completions", loaded(routes.completions), methods=post),
            Route("/v1/chat/completions", loaded(routes.chat), methods=post),
        ],
        exception_handlers={HTTPException: _routing_error},
    )


class Routes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._scheduler = service.scheduler

    def loaded(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            if not self._service.ready:
                return _refused("the model is still loading", status=503)
            try:
                return await handler(request)
            except RefusedError as error:
                return _refused(str(error), kind=error.kind, status=error.status)
            except ClientGoneError:
                return Response(status_code=499)

        return guarded

    async def health(self, _: Request) -> Response:
        return Response(status_code=200 if self._service.ready else 503)

    async def health_generate(self, request: Request) -> Response:
        """Generate a token, or see one being generated for somebody else."""
        if not self._service.ready:
            return Response(status_code=503)
        asked = time.monotonic()
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def ended(_: Snapshot) -> None:
            loop.call_soon_threadsafe(done.set)

        job = self._service.probe(ended)
        try:
            while time.monotonic() < asked + HEALTH_SECONDS:
                if self._scheduler.last_step > asked:
                    return Response(status_code=200)
                if done.is_set():
                    break
                await asyncio.sleep(0.02)
                if await request.is_disconnected():
                    break
        finally:
            self._scheduler.abandon(job)
        return Response(status_code=503)

    async def metrics(self, _: Request) -> Response:
        text = protocol.prometheus(self._service.samples())
        return Response(text, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    async def models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._service.model_card()]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["model"]
        if name != self._service.arguments.served_model_name:
            return JSONResponse(protocol.unknown_model(name), status_code=404)
        return JSONResponse(self._service.model_card())

    async def model_info(self, _: Request) -> Response:
        return JSONResponse(self._service.model_info())

    async def server_info(self, _: Request) -> Response:
        return JSONResponse(self._service.server_info())

    async def flush_cache(self, request: Request) -> Response:
        """400 while a request runs or waits, after `timeout` seconds of patience."""
        try:
            patience = float(request.query_params.get("timeout", 0))
        except ValueError:
            patience = -1.0
        if patience < 0:
            raise RefusedError("timeout: a number of seconds, 0 or more", kind=UNPARSED)
        deadline = time.monotonic() + patience
        while not self._scheduler.flush():
            if time.monotonic() >= deadline:
                return Response("Not flushed: requests run or wait.\n", status_code=400)
            await asyncio.sleep(0.01)
        return Response("Flushed. The lab engine keeps no prefix cache.\n")

    async def generate(self, request: Request) -> Response:
        body = await json_object(request)
        try:
            refuse_unserved(body, self._service.limits)
            asked = parsed(GenerateRequest, body)
            asks = generate_asks(asked, self._service.tokenizer.encode, self._service.limits)
            ids = self._ids(asked.rid, len(asks))
            if asked.stream and len(asks) > 1:
                raise RefusedError("the lab engine streams one prompt at a time")
        except RefusedError as error:
            if error.kind == UNPARSED:
                raise
            if body.get("stream"):
                told = protocol.streamed_native_error(str(error), error.status)
                return _stream(_events([told]))
            return JSONResponse(protocol.native_error(str(error)), status_code=error.status)
        if asked.stream:
            reception = Reception(self._scheduler, request, ids[0], asks[0], streams=True)
            return _stream(self._generate_events(reception, asked))
        receptions = self._receptions(request, ids, asks)
        answers = await _all(receptions)
        bodies = []
        for reception, now in zip(receptions, answers, strict=True):
            if (failed := _failed(now)) is not None:
                return failed
            bodies.append(self._native(reception, now, asked))
        return JSONResponse(bodies if asked.batched else bodies[0])

    async def _generate_events(
        self, reception: Reception, asked: GenerateRequest
    ) -> AsyncGenerator[str, None]:
        async with aclosing(reception.snapshots()) as snapshots:
            async for now in snapshots:
                yield _event(self._native(reception, now, asked))
        yield _DONE

    def _native(
        self, reception: Reception, now: Snapshot, asked: GenerateRequest
    ) -> dict[str, Any]:
        job = reception.job
        body = {
            "text": now.text,
            "output_ids": list(now.token_ids),
            "meta_info": self._service.meta_info(job, now),
        }
        if asked.return_prompt_token_ids:
            body["prompt_token_ids"] = list(job.ask.prompt)
        return body

    async def completions(self, request: Request) -> Response:
        body = await json_object(request)
        refuse_unserved(body, self._service.limits)
        asked = parsed(CompletionRequest, body)
        asks = completion_asks(asked, self._service.tokenizer.encode, self._service.limits)
        ids = self._ids(asked.rid, len(asks))
        if asked.stream:
            if len(asks) > 1:
                raise RefusedError("the lab engine streams one prompt at a time")
            reception = Reception(self._scheduler, request, ids[0], asks[0], streams=True)
            return await _begun(self._completion_events(reception, asked))
        receptions = self._receptions(request, ids, asks)
        answers = await _all(receptions)
        if (failed := next(filter(None, map(_failed, answers)), None)) is not None:
            return failed
        pairs = [(one.job, now) for one, now in zip(receptions, answers, strict=True)]
        return JSONResponse(
            protocol.text_completion(pairs, asked.model, token_ids=asked.return_token_ids)
        )

    async def _completion_events(
        self, reception: Reception, asked: CompletionRequest
    ) -> AsyncGenerator[str, None]:
        job = reception.job
        shown = tokens = 0
        options = asked.stream_options or StreamOptions()
        async with aclosing(reception.snapshots()) as snapshots:
            async for now in snapshots:
                if (failure := _failure(now)) is not None:
                    yield _event({"error": failure})
                    break
                fresh: dict[str, Any] = {}
                if asked.return_token_ids:
                    fresh["token_ids"] = list(now.token_ids[tokens:])
                    if tokens == 0:
                        fresh["prompt_token_ids"] = list(job.ask.prompt)
                counted = _counted(job.ask, now)
                yield _event(
                    protocol.text_chunk(
                        job,
                        asked.model,
                        now.text[shown:],
                        now,
                        ids=fresh,
                        counted=counted if options.continuous_usage_stats else None,
                    )
                )
                shown, tokens = len(now.text), len(now.token_ids)
            else:
                if options.include_usage:
                    yield _event(protocol.text_usage_chunk(job, asked.model, counted))
        yield _DONE

    async def chat(self, request: Request) -> Response:
        body = await json_object(request)
        refuse_unserved(body, self._service.limits)
        asked = parsed(ChatRequest, body)
        extras = (asked.return_meta_info, asked.return_token_ids, asked.return_prompt_token_ids)
        if asked.stream and any(extras):
            raise RefusedError(
                "return_meta_info and return_..._token_ids do not go with stream", kind="BadRequest"
            )

        def render(messages: Sequence[Mapping[str, str]]) -> list[int]:
            return self._service.tokenizer.chat(messages, asked.chat_template_kwargs or {})

        try:
            ask = chat_ask(asked, render, self._service.limits)
        except TemplateError as error:
            raise RefusedError(str(error), kind="BadRequest") from error
        (job_id,) = self._ids(asked.rid, 1)
        reception = Reception(self._scheduler, request, job_id, ask, streams=asked.stream)
        if asked.stream:
            return await _begun(self._chat_events(reception, asked))
        now = await reception.last()
        if (failed := _failed(now)) is not None:
            return failed
        told: dict[str, Any] = {}
        if asked.return_token_ids or asked.return_prompt_token_ids:
            told["prompt_token_ids"] = list(ask.prompt)
        if asked.return_token_ids:
            told["token_ids"] = list(now.token_ids)
        if asked.return_meta_info:
            told["meta_info"] = self._service.meta_info(reception.job, now)
        return JSONResponse(protocol.chat_completion(reception.job, now, asked.model, told))

    async def _chat_events(
        self, reception: Reception, asked: ChatRequest
    ) -> AsyncGenerator[str, None]:
        job = reception.job
        shown: int | None = None
        options = asked.stream_options or StreamOptions()
        async with aclosing(reception.snapshots()) as snapshots:
            async for now in snapshots:
                if (failure := _failure(now)) is not None:
                    yield _event({"error": failure})
                    break
                if shown is None:
                    shown = 0
                    yield _event(
                        protocol.chat_chunk(job, asked.model, role="assistant", content="")
                    )
                counted = _counted(job.ask, now)
                if len(now.text) > shown:
                    told = counted if options.continuous_usage_stats else None
                    piece = now.text[shown:]
                    yield _event(protocol.chat_chunk(job, asked.model, content=piece, counted=told))
                    shown = len(now.text)
            else:
                yield _event(protocol.chat_chunk(job, asked.model, finish=now))
                if options.include_usage:
                    yield _event(protocol.chat_usage_chunk(job, asked.model, counted))
        yield _DONE

    def _receptions(
        self, request: Request, ids: Sequence[str], asks: Sequence[Ask]
    ) -> list[Reception]:
        return [
            Reception(self._scheduler, request, job_id, ask, streams=False)
            for job_id, ask in zip(ids, asks, strict=True)
        ]

    def _ids(self, wanted: str | list[str] | None, count: int) -> list[str]:
        if wanted is None:
            return [uuid.uuid4().hex for _ in range(count)]
        if isinstance(wanted, str):
            return [wanted] if count == 1 else [f"{wanted}_{index}" for index in range(count)]
        if len(wanted) != count or len(set(wanted)) != count:
            raise RefusedError(f"rid: {count} different names for {count} prompts")
        return wanted


_DONE = "data: [DONE]\n\n"


def _event(body: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"


async def _events(bodies: Sequence[Mapping[str, Any]]) -> AsyncGenerator[str, None]:
    for body in bodies:
        yield _event(body)
    yield _DONE


def _stream(events: AsyncGenerator[str, None], *already: str) -> StreamingResponse:
    async def until_gone() -> AsyncIterator[str]:
        for event in already:
            yield event
        with suppress(ClientGoneError):
            async with aclosing(events):
                async for event in events:
                    yield event

    return StreamingResponse(until_gone(), media_type="text/event-stream")


async def _begun(events: AsyncGenerator[str, None]) -> StreamingResponse:
    """Answer 200 only once there is something to stream, as SGLang's OpenAI API does."""
    return _stream(events, await anext(events))


async def _all(receptions: Sequence[Reception]) -> list[Snapshot]:
    return list(await asyncio.gather(*(one.last() for one in receptions)))


def _counted(ask: Ask, now: Snapshot) -> dict[str, Any]:
    return protocol.usage([len(ask.prompt)], [len(now.token_ids)])


def _failure(now: Snapshot) -> dict[str, Any] | None:
    finish = now.finish or {}
    status = finish.get("status_code")
    if finish.get("type") != "abort" or status is None:
        return None
    return protocol.error(finish["message"], kind=str(status), status=status)


def _failed(now: Snapshot) -> Response | None:
    failure = _failure(now)
    return failure and JSONResponse(failure, status_code=failure["code"])  # type: ignore[return-value]


def _refused(message: str, *, kind: str = "", status: int = 400) -> Response:
    told = protocol.error(message, kind=kind or str(status), status=status)
    return JSONResponse(told, status_code=status)


async def _routing_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, status_code=error.status_code)
