"""From a request to what the engine is asked: prompts, sampling, stops, all of it checked.

Defaults, ranges and the room for an answer are those of SGLang 0.5.17 (under srt:
sampling/sampling_params.py, managers/tokenizer_manager.py, managers/scheduler.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .requests import (
    ChatRequest,
    CompletionRequest,
    GenerateRequest,
    NativeSampling,
    RefusedError,
    SamplingOptions,
)

if TYPE_CHECKING:
    from .decode import Sampling

GREEDY_BELOW = 1e-6
"""Temperatures under this mean the most likely token."""

# What SGLang knows and the lab does not do, with the values that ask for nothing.
_NOTHING: tuple[Any, ...] = (None, False, 0, [], {}, "")
_UNSERVED_SAMPLING: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": _NOTHING,
    "presence_penalty": _NOTHING,
    "repetition_penalty": (None, 1),
    "min_p": _NOTHING,
    "n": (None, 1),
    "min_tokens": _NOTHING,
    "min_new_tokens": _NOTHING,
    "logit_bias": _NOTHING,
    "regex": _NOTHING,
    "ebnf": _NOTHING,
    "json_schema": _NOTHING,
    "structural_tag": _NOTHING,
    "stop_regex": _NOTHING,
    "stream_interval": (None, 1),
    "custom_params": _NOTHING,
}
_KNOWN_SAMPLING = frozenset(
    {*NativeSampling.model_fields, *_UNSERVED_SAMPLING, "spaces_between_special_tokens"}
)
_UNSERVED: dict[str, tuple[Any, ...]] = _UNSERVED_SAMPLING | {
    "best_of": (None, 1),
    "response_format": (None, {"type": "text"}),
    "tools": _NOTHING,
    "reasoning": _NOTHING,
    "reasoning_effort": _NOTHING,
    "echo": _NOTHING,
    "suffix": _NOTHING,
    "continue_final_message": _NOTHING,
    "custom_logit_processor": _NOTHING,
    "input_embeds": _NOTHING,
    "image_data": _NOTHING,
    "audio_data": _NOTHING,
    "video_data": _NOTHING,
    "lora_path": _NOTHING,
    "session_id": _NOTHING,
    "session_params": _NOTHING,
    "return_hidden_states": _NOTHING,
    "return_routed_experts": _NOTHING,
    "return_cached_tokens_details": _NOTHING,
    "return_sampling_mask": _NOTHING,
    "max_thinking_tokens": _NOTHING,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What the loaded model and its algorithm allow."""

    algorithm: str
    vocabulary: int
    context_length: int
    defaults: Mapping[str, float]
    """Sampling defaults of generation_config.json; chat alone uses them, as in SGLang."""
    always_stop: frozenset[int]
    """End-of-sequence tokens of the tokenizer, beside those of the model."""
    draw_seed: Callable[[], int]
    """A seed for a request that brings none."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt with everything that decides its answer."""

    prompt: tuple[int, ...]
    sampling: Sampling
    stop: tuple[str, ...]
    trims_stop: bool
    skips_special_tokens: bool


def refuse_unserved(body: Mapping[str, Any], limits: Limits) -> None:
    """Refuse what would otherwise be dropped in silence. Raises RefusedError."""
    asked = body.get("logprobs")  # a number in a completion, and 0 asks for them as well
    logprobs = body.get("return_logprob") or not (asked is None or asked is False)
    if logprobs and limits.algorithm != "none":
        # SGLang refuses it too: validate_dflash_request in srt/speculative/dflash_utils.py.
        raise RefusedError(
            f"{limits.algorithm} speculative decoding cannot return log-probabilities"
        )
    if logprobs:
        raise RefusedError("the lab engine does not return log-probabilities")
    params = body.get("sampling_params")
    for part in params if isinstance(params, list) else [params]:
        if isinstance(part, dict):
            _refuse(part, _UNSERVED_SAMPLING)
            unknown = sorted(part.keys() - _KNOWN_SAMPLING)
            if unknown:
                raise RefusedError(f"no sampling parameter {unknown[0]!r}")
    _refuse(body, _UNSERVED)


def _refuse(body: Mapping[str, Any], unserved: Mapping[str, tuple[Any, ...]]) -> None:
    for field, nothing in unserved.items():
        if field in body and body[field] not in nothing:
            raise RefusedError(f"the lab engine does not serve {field!r}: leave it out")


def chat_ask(
    request: ChatRequest, render: Callable[[Sequence[Mapping[str, str]]], list[int]], limits: Limits
) -> Ask:
    """Raises RefusedError, and what `render` (the chat template) raises."""
    if not request.messages:
        raise RefusedError("messages are empty")
    if any(message.tool_calls for message in request.messages):
        raise RefusedError("the lab engine knows no tools: leave tool_calls out of the messages")
    wanted = request.max_completion_tokens or request.max_tokens
    _refuse_adapter(request.model)
    defaults = limits.defaults
    for field, neutral in (("min_p", 0), ("repetition_penalty", 1)):
        if defaults.get(field, neutral) != neutral:
            raise RefusedError(
                f"the model's generation_config.json sets {field}, which the lab does not serve"
            )
    prompt = request.input_ids
    if prompt is None:
        prompt = render([message.plain() for message in request.messages])
    return _ask(
        prompt,
        request,
        limits,
        max_new_tokens=wanted,
        temperature=_chosen(request.temperature, defaults.get("temperature"), 1.0),
        top_p=_chosen(request.top_p, defaults.get("top_p"), 1.0),
        top_k=int(_chosen(request.top_k, defaults.get("top_k"), -1)),
        seed=request.seed,
    )


def completion_asks(
    request: CompletionRequest, encode: Callable[[str], list[int]], limits: Limits
) -> list[Ask]:
    """Raises RefusedError."""
    _refuse_adapter(request.model)
    prompts = _prompts(request.prompt, encode)
    return [
        _ask(
            prompt,
            request,
            limits,
            max_new_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            seed=request.seed,
        )
        for prompt in prompts
    ]


def generate_asks(
    request: GenerateRequest, encode: Callable[[str], list[int]], limits: Limits
) -> list[Ask]:
    """Raises RefusedError."""
    source = request.source
    if source is None:
        raise RefusedError("give either text or input_ids")
    prompts = _prompts(source, encode)
    params = request.sampling_params or NativeSampling()
    if not isinstance(params, list):
        params = [params] * len(prompts)
    if len(params) != len(prompts):
        raise RefusedError(f"{len(prompts)} prompts, but {len(params)} sampling_params")
    return [
        _ask(
            prompt,
            options,
            limits,
            max_new_tokens=options.max_new_tokens,
            # What nobody asked for is made to fit; what somebody asked for must fit.
            fits="max_new_tokens" not in options.model_fields_set,
            temperature=_chosen(options.temperature, None, 1.0),
            top_p=_chosen(options.top_p, None, 1.0),
            top_k=int(_chosen(options.top_k, None, -1)),
            seed=options.sampling_seed,
        )
        for prompt, options in zip(prompts, params, strict=True)
    ]


def _ask(
    prompt: Sequence[int],
    options: SamplingOptions,
    limits: Limits,
    *,
    max_new_tokens: int | None,
    temperature: float,
    top_p: float,
    top_k: int,
    seed: int | None,
    fits: bool = False,
) -> Ask:
    from .decode import Sampling

    _check_prompt(prompt, None if fits else max_new_tokens, limits)
    if not math.isfinite(temperature) or temperature < 0:
        raise RefusedError(f"temperature is {temperature}; it must be 0 or more")
    if not 0 < top_p <= 1:
        raise RefusedError(f"top_p is {top_p}; it must be above 0 and at most 1")
    if top_k < 1 and top_k != -1:
        raise RefusedError(
            f"top_k is {top_k}; it must be 1 or more, or -1 for the whole vocabulary"
        )
    if seed is not None and seed < 0:
        raise RefusedError(f"the seed is {seed}; it must be 0 or more")
    greedy = temperature < GREEDY_BELOW
    # The room that SGLang's scheduler leaves: init_req_max_new_tokens in srt/managers/scheduler.py.
    room = max(limits.context_length - len(prompt) - 2, 0)
    stop = [options.stop] if isinstance(options.stop, str) else options.stop or []
    return Ask(
        prompt=tuple(prompt),
        sampling=Sampling(
            max_new_tokens=room if max_new_tokens is None else min(max_new_tokens, room),
            temperature=0.0 if greedy else temperature,
            top_p=top_p,
            top_k=top_k,
            seed=seed if seed is not None or greedy else limits.draw_seed(),
            ignore_eos=options.ignore_eos,
            stop_token_ids=_stop_tokens(options, limits),
        ),
        stop=tuple(text for text in stop if text),
        trims_stop=not options.no_stop_trim,
        skips_special_tokens=options.skip_special_tokens,
    )


def _stop_tokens(options: SamplingOptions, limits: Limits) -> frozenset[int]:
    if options.ignore_eos:
        # In SGLang ignore_eos switches every stop token off, not only the end of the sequence.
        return frozenset()
    return frozenset(options.stop_token_ids or ()) | limits.always_stop


def _check_prompt(prompt: Sequence[int], max_new_tokens: int | None, limits: Limits) -> None:
    if not prompt:
        raise RefusedError("the prompt is empty")
    outside = next((token for token in prompt if not 0 <= token < limits.vocabulary), None)
    if outside is not None:
        raise RefusedError(f"token {outside} is outside the vocabulary of {limits.vocabulary}")
    context = limits.context_length
    if len(prompt) >= context:
        raise RefusedError(
            f"the prompt of {len(prompt)} tokens does not fit the context of {context}"
        )
    if max_new_tokens is None:
        return
    if max_new_tokens < 0:
        raise RefusedError(f"{max_new_tokens} new tokens make no sense: ask for 0 or more")
    if len(prompt) + max_new_tokens > context:
        raise RefusedError(
            f"{len(prompt)} prompt tokens and {max_new_tokens} new ones do not fit"
            f" the context of {context}"
        )


def _prompts(
    source: str | list[str] | list[int] | list[list[int]], encode: Callable[[str], list[int]]
) -> list[list[int]]:
    if isinstance(source, str):
        return [encode(source)]
    if not source:
        raise RefusedError("the prompt is empty")
    if isinstance(source[0], int):
        return [source]
    return [encode(one) if isinstance(one, str) else one for one in source]


def _refuse_adapter(model: str) -> None:
    # SGLang echoes any model name, but takes what follows a colon for a LoRA adapter.
    _, colon, adapter = model.partition(":")
    if colon and adapter:
        raise RefusedError(f"no LoRA adapter {adapter!r}: the lab engine serves none")


def _chosen(wanted: float | None, of_model: float | None, otherwise: float) -> float:
    if wanted is not None:
        return wanted
    return otherwise if of_model is None else of_model
