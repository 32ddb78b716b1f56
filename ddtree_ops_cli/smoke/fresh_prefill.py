"""The target's own word: what it says next after a prompt that no speculation has touched."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine_api.client import EngineClient
from ..errors import Unhealthy
from .session import IDLE_SECONDS

TIE_TEMPERATURE = 0.05
TIE_SAMPLES = 32
MOST_TIES = 2
"""Near ties that one check excuses."""


class BusyError(Exception):
    """The cache cannot be flushed while the engine serves others."""


def next_token(engine: EngineClient, prefix: Sequence[int]) -> int:
    """The most likely token after `prefix`, computed from nothing. Raises BusyError."""
    if not engine.flush_cache(wait=IDLE_SECONDS):
        raise BusyError
    tokens = engine.generate(prefix, max_new_tokens=1, ignore_eos=True).token_ids
    if len(tokens) != 1:
        raise Unhealthy(f"asked for one token, got {len(tokens)}", where=engine.base_url)
    return tokens[0]


def nearly_tied(engine: EngineClient, prefix: Sequence[int], token: int) -> bool:
    """Whether `token` is as good as the most likely one after `prefix`.

    In bf16 a verify pass and a prefill round differently, and two tokens whose logits are almost
    equal may change places, with a chain as with a tree (vllm-project/vllm issue 54506). Logits
    are not to be had from a speculating engine, but samples are: at temperature 0.05, one of 32
    samples shows a token that is about 0.17 behind in logits, and none shows a wrong one.
    """
    return any(
        engine.generate(
            prefix,
            max_new_tokens=1,
            temperature=TIE_TEMPERATURE,
            sampling_seed=seed,
            ignore_eos=True,
        ).token_ids
        == (token,)
        for seed in range(TIE_SAMPLES)
    )
