"""What SGLang 0.5.17 leaves to graphs and activations, and what of that is known to be taken. Pure.

Paths are under sglang/srt; sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from .engine_options import EngineOptions
from .shapes import GIB, MIB, Pair


def buffers(
    capacity: int, pair: Pair, options: EngineOptions, running: int
) -> tuple[tuple[str, int], ...]:
    """What is allocated after the pools, for the largest batch that graphs are captured for."""
    target, drafter, context = pair.target, pair.drafter, options.context_length
    batch = min(running, options.captured(capacity)) if options.decode_graphs else 0
    rows = batch * options.rows
    found = [
        # mem_cache/memory_pool.ReqToTokenPool: int32
        ("table of tokens", (running + 1) * (context + 2 * options.rows) * 4),
        # model_executor/graph_shared_output.py: float32
        ("logits", rows * target.vocabulary * 4),
        # layers/attention/triton_backend.init_cuda_graph_state: int64 indices, float32 partial sums
        ("attention", _attention_workspace(target.attention.heads, target.attention.value_dim,
                                           rows, options)),
    ]  # fmt: skip
    if options.algorithm != "none":
        # layers/attention/verify_mask.py: uint8, for the whole context
        found.append(("verify mask", rows * (context + options.rows)))
        # speculative/eagle_utils.eagle_sample: target and draft probabilities, float32
        sampled = running * options.rows if options.tree else 0
        found.append(("sampling above temperature 0", 2 * sampled * target.vocabulary * 4))
    if drafter is not None:
        heads, value_dim = drafter.attention.heads, drafter.attention.value_dim
        block = drafter.block_size or options.rows
        workspace = _attention_workspace(heads, value_dim, batch * block, options)
        found.append(("attention of the drafter", workspace))
    return tuple((name, size) for name, size in found if size)


def _attention_workspace(heads: int, value_dim: int, rows: int, options: EngineOptions) -> int:
    splits = 8  # --triton-attention-num-kv-splits
    return rows * (heads * splits * (value_dim + 1) * 4 + options.context_length * 8)


def estimated_reserve(capacity: int, options: EngineOptions) -> int:
    """server_args._handle_gpu_memory_settings, one GPU: 1.5 MiB a token of prefill, and graphs."""
    mib = 512 + 1.5 * max(options.prefill_tokens(capacity), 2048) + 128
    if options.decode_graphs:
        mib += 2 * options.captured(capacity)
    if options.prefill_graphs:
        mib += 8 * len(_prefill_sizes(options.prefill_tokens(capacity)))
    if capacity > 60 * GIB:
        mib = max(mib, 10 * 1024)
    return int(mib * MIB)


def default_fraction(capacity: int, estimated: int, pair: Pair, options: EngineOptions) -> float:
    fraction = round((capacity - estimated) / capacity, 3)
    if pair.target.vision is None or options.language_only:
        return fraction
    # server_args.adjust_mem_fraction_for_vlm: less for a larger image encoder than ViT-L/14.
    layers, hidden = pair.target.vision
    complexity = layers * hidden**2 / (24 * 1024**2)
    return fraction * 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (complexity - 1.0)))


def _prefill_sizes(largest: int) -> list[int]:
    """server_args._generate_prefill_cuda_graph_batch_sizes"""
    ranges: Iterable[range] = (
        range(4, 33, 4), range(48, 257, 16), range(288, 513, 32), range(576, 1025, 64),
        range(1280, 4097, 256), range(4608, largest + 1, 512),
    )  # fmt: skip
    return [size for sizes in ranges for size in sizes if size <= largest]
