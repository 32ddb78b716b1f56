"""Which requests DDTREE refuses, rather than answer them as if their options were not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang.srt.utils import is_cuda

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req


def refusal(req: Req) -> str | None:
    """Why this request cannot be served, or None.

    Log-probabilities are refused by DFLASH's own check, before this one.
    """
    params = req.sampling_params
    penalties = {
        "frequency_penalty": params.frequency_penalty != 0.0,
        "presence_penalty": params.presence_penalty != 0.0,
        "repetition_penalty": params.repetition_penalty != 1.0,
        "min_new_tokens": params.min_new_tokens > 0,
        "min_p": params.min_p > 0.0,
        "custom_logit_processor": req.custom_logit_processor is not None,
        "return_hidden_states": bool(req.return_hidden_states),
    }
    for name, asked in penalties.items():
        if asked:
            return f"DDTREE does not support {name}; leave it out, or serve with DFLASH."
    # SGLang turns temperature 0 into top_k 1 before the request arrives.
    if params.top_k > 1 and not is_cuda():
        return "DDTREE samples only on CUDA; send temperature 0."
    return None
