"""What the lab server answers: SGLang's shapes, key for key.

Sources, SGLang 0.5.17 under srt: entrypoints/openai/{protocol,serving_chat,serving_completions,
sse_utils}.py for the OpenAI API, managers/tokenizer_manager.py for `meta_info`, entrypoints/
http_server.py for the rest. Keys that stay out are listed in tests/engine_api/test_contract.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from .answer import Counts, Snapshot
from .scheduler import Job

WEIGHT_VERSION = "default"


def error(message: str, *, kind: str = "BadRequestError", status: int = 400) -> dict[str, Any]:
    """An error of the OpenAI API, and of any body that does not parse."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": status}


def native_error(message: str) -> dict[str, Any]:
    """An error of /generate about a body that parses."""
    return {"error": {"message": message}}


def streamed_native_error(message: str, status: int) -> dict[str, Any]:
    return {
        "error": {
            "message": message,
            "type": "invalid_request_error",
            "code": status,
            "retryable": False,
        }
    }


def meta_info(job: Job, now: Snapshot, *, draft_tokens: int, tree: bool) -> dict[str, Any]:
    """`meta_info` of one answer; the times and spec_* figures come with its end.

    `draft_tokens` is SGLang's speculative_num_draft_tokens (root included), 0 for plain decoding.
    """
    meta: dict[str, Any] = {
        "id": job.id,
        "finish_reason": now.finish,
        "prompt_tokens": len(job.ask.prompt),
        "weight_version": WEIGHT_VERSION,
        "num_retractions": 0,
        "forward_entry_time": job.started,
        "prefill_finished_time": job.first_token,
        "queue_time": max(job.started - job.received, 0.0),
        "reasoning_tokens": 0,
        "completion_tokens": len(now.token_ids),
        "cached_tokens": 0,
        "cached_tokens_details": None,
        "dp_rank": None,
    }
    first, job.sent = not job.sent, job.sent or time.time()
    if first or now.finish is not None:
        meta["response_sent_to_client_ts"] = job.sent
    if now.finish is None:
        return meta
    meta["e2e_latency"] = job.finished - job.received
    meta |= _speculation(now.counts, len(now.token_ids), draft_tokens, tree)
    decoding = job.finished - job.first_token
    if len(now.token_ids) > 1 and decoding > 0:
        meta["decode_throughput"] = (len(now.token_ids) - 1) / decoding
    return meta | {
        "request_received_ts": job.received,
        "api_server_dispatch_finish_ts": job.received,
        "request_finished_ts": job.finished,
    }


def _speculation(counts: Counts, tokens: int, draft_tokens: int, tree: bool) -> dict[str, Any]:
    """The figures of `_calculate_spec_decoding_metrics`, and the DDTREE one beside them."""
    proposed = counts.verify_steps * (draft_tokens - 1)
    if proposed <= 0:
        return {}
    histogram = list(counts.histogram)
    figures: dict[str, Any] = {
        "spec_accept_rate": counts.correct_drafts / proposed,
        "spec_accept_length": tokens / counts.verify_steps,
        "spec_num_correct_drafts": counts.correct_drafts,
        "spec_num_proposed_drafts": proposed,
        "spec_verify_ct": counts.verify_steps,
        # Older names that 0.5.17 still writes.
        "spec_accepted_drafts": counts.correct_drafts,
        "spec_proposed_drafts": proposed,
        "spec_correct_drafts_histogram": histogram,
        "spec_accept_histogram": histogram,
    }
    if tree:
        figures["spec_num_off_spine_drafts"] = counts.off_spine_drafts
    return figures


def usage(prompts: Sequence[int], completions: Sequence[int]) -> dict[str, Any]:
    """Token counts, from those of each prompt and each answer."""
    return {
        "prompt_tokens": sum(prompts),
        "total_tokens": sum(prompts) + sum(completions),
        "completion_tokens": sum(completions),
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
    }


def chat_completion(
    job: Job, now: Snapshot, model: str, extras: Mapping[str, Any]
) -> dict[str, Any]:
    """`extras`: meta_info, token_ids and prompt_token_ids, those that the client asked for."""
    choice = {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": now.text,
            "reasoning_content": None,
            "tool_calls": None,
        },
        "logprobs": None,
        **_finish(now),
        **extras,
    }
    return {
        "id": job.id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": usage([len(job.ask.prompt)], [len(now.token_ids)]),
        "metadata": {"weight_version": WEIGHT_VERSION},
    }


def chat_chunk(
    job: Job,
    model: str,
    *,
    role: str | None = None,
    content: str | None = None,
    finish: Snapshot | None = None,
    counted: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One event of a streamed chat: the role, a piece of content, or the end."""
    delta: dict[str, Any] = {"reasoning_content": None}
    if role is not None:
        delta["role"] = role
    if content is not None:
        delta["content"] = content
    end = _finish(finish) if finish else {"finish_reason": None, "matched_stop": None}
    chunk = _chat_event(job, model, [{"index": 0, "delta": delta, "logprobs": None, **end}])
    return chunk | {"usage": counted} if counted is not None else chunk


def chat_usage_chunk(job: Job, model: str, counted: Mapping[str, Any]) -> dict[str, Any]:
    return _chat_event(job, model, []) | {"usage": counted}


def _chat_event(job: Job, model: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": job.id,
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
    }


def text_completion(
    answers: Sequence[tuple[Job, Snapshot]], model: str, *, token_ids: bool
) -> dict[str, Any]:
    choices = []
    for index, (job, now) in enumerate(answers):
        ids = (
            {"token_ids": list(now.token_ids), "prompt_token_ids": list(job.ask.prompt)}
            if token_ids
            else {}
        )
        choices.append({"index": index, "text": now.text, "logprobs": None, **_finish(now), **ids})
    return {
        "id": answers[0][0].id,
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "usage": usage(
            [len(job.ask.prompt) for job, _ in answers],
            [len(now.token_ids) for _, now in answers],
        ),
        "metadata": {"weight_version": WEIGHT_VERSION},
    }


def text_chunk(
    job: Job,
    model: str,
    text: str,
    now: Snapshot,
    *,
    ids: Mapping[str, Any],
    counted: Mapping[str, Any] | None,
) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "logprobs": None, **_finish(now), **ids}
    return _text_event(job, model, [choice]) | {"usage": counted}


def text_usage_chunk(job: Job, model: str, counted: Mapping[str, Any]) -> dict[str, Any]:
    told = {key: value for key, value in counted.items() if value is not None}
    return _text_event(job, model, []) | {"usage": told}


def _text_event(job: Job, model: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": job.id,
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
    }


def _finish(now: Snapshot) -> dict[str, Any]:
    finish = now.finish or {}
    return {"finish_reason": finish.get("type"), "matched_stop": finish.get("matched")}


def model_card(name: str, context_length: int, created: int) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "ddtree-lab",
        "root": name,
        "parent": None,
        "max_model_len": context_length,
    }


def unknown_model(name: str) -> dict[str, Any]:
    return {
        "error": {
            "message": f"there is no model {name!r} here",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }


def prometheus(samples: Sequence[tuple[str, str, Mapping[str, str], float]]) -> str:
    """Text format 0.0.4 of (name, kind, labels, value); samples of one name stand together."""
    lines = []
    previous = ""
    for name, kind, labels, value in samples:
        if name != previous:
            lines.append(f"# TYPE {name} {kind}")
            previous = name
        inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{{{inner}}} {value}")
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
