"""Which requests the patched SGLang refuses, by SGLang's own check of a request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.speculative import dflash_utils
from sglang.srt.speculative.ddtree import requests

TOKENIZER = SimpleNamespace(encode=lambda text, **_: [7] * len(text))
GREEDY = {"temperature": 0.0, "max_new_tokens": 4}


def verdict(
    monkeypatch: pytest.MonkeyPatch,
    sampling: dict[str, Any],
    options: dict[str, Any],
    algorithm: str = "DDTREE",
) -> str | None:
    spec = SimpleNamespace(speculative_algorithm=algorithm)
    monkeypatch.setattr(dflash_utils, "get_spec", lambda: spec)
    params = SamplingParams(**{**GREEDY, **sampling})
    params.normalize(TOKENIZER)
    request = Req(
        rid="r", origin_input_text="", origin_input_ids=[1, 2], sampling_params=params, **options
    )
    return dflash_utils.validate_dflash_request(request, enable_overlap=False)


@pytest.mark.parametrize(
    ("sampling", "options", "named"),
    [
        ({"frequency_penalty": 0.5}, {}, "frequency_penalty"),
        ({"presence_penalty": -0.5}, {}, "presence_penalty"),
        ({"repetition_penalty": 1.1}, {}, "repetition_penalty"),
        ({"min_new_tokens": 1}, {}, "min_new_tokens"),
        ({"min_p": 0.1}, {}, "min_p"),
        ({}, {"custom_logit_processor": "x"}, "custom_logit_processor"),
        ({}, {"return_hidden_states": True}, "return_hidden_states"),
        ({}, {"return_logprob": True}, "return_logprob"),
        ({"temperature": 0.7}, {}, "temperature"),
    ],
)
def test_what_would_be_ignored_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
    sampling: dict[str, Any],
    options: dict[str, Any],
    named: str,
) -> None:
    said = verdict(monkeypatch, sampling, options)
    assert said is not None
    assert named in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"regex": "[0-9]+"},
        {"stop": ["x"]},
        {"logit_bias": {"5": 1.0}},
        # What a greedy request may carry without meaning it.
        {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0},
        {"min_p": 0.0, "top_p": 0.9, "top_k": 20},
    ],
    ids=str,
)
def test_what_the_tree_honours_is_served(
    monkeypatch: pytest.MonkeyPatch, sampling: dict[str, Any]
) -> None:
    assert verdict(monkeypatch, sampling, {}) is None


def test_on_cuda_temperature_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "is_cuda", lambda: True)
    assert verdict(monkeypatch, {"temperature": 0.7}, {}) is None


def test_linear_dflash_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for sampling in ({"frequency_penalty": 0.5}, {"temperature": 0.7}):
        assert verdict(monkeypatch, sampling, {}, algorithm="DFLASH") is None
