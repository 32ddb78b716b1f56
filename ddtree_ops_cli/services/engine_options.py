"""The options of SGLang 0.5.17 that decide how memory is divided, with its defaults. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeVar

from ..errors import UsageError
from .shapes import GIB, TargetShape
from .spec import ServiceSpec

_Number = TypeVar("_Number", int, float)
_ITEMSIZES = {"float32": 4, "bfloat16": 2, "float16": 2}
_CONTEXT_LENGTH = 2048
_SPECULATIVE_REQUESTS = 48
"""arg_groups/speculative_hook.py, where --max-running-requests is not given."""
# arg_groups/overrides.py of 0.5.17: _MAMBA_RADIX_CACHE_ARCHS with _MAMBA_EXTRA_BUFFER_ARCHS, those
# of gated DeltaNet. The text-only class is in neither, so DDTREE adds its target by itself
# (patches/ddtree/arguments.py).
_EXTRA_BUFFER = frozenset(
    {
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3NextForCausalLM",
        "InternS2PreviewForConditionalGeneration",
    }
)
# By memory of the GPU (up to GiB): tokens of a prefill chunk, largest captured decode batch.
_BY_MEMORY = ((20, 2048, 8), (35, 2048, 24), (60, 4096, 32), (90, 8192, 256), (160, 8192, 256))
_LARGEST = (16384, 512)

# Further ways to say what a field says, or flags without a value.
_ALIASES = {"cuda-graph-max-bs": "cuda-graph-max-bs-decode"}
_SWITCHES = (
    "disable-radix-cache", "disable-overlap-schedule", "disable-cuda-graph",
    "disable-decode-cuda-graph", "disable-prefill-cuda-graph", "language-only",
)  # fmt: skip
UNCOUNTED = (
    "tp", "tp-size", "tensor-parallel-size", "pp-size", "dp-size", "quantization", "cpu-offload-gb",
    "cuda-graph-bs", "cuda-graph-bs-decode", "cuda-graph-bs-prefill", "cuda-graph-config",
    "max-prefill-tokens", "enable-linear-replayssm-spec", "enable-unified-memory",
    "disaggregation-mode", "enable-lora", "speculative-draft-window-size",
)  # fmt: skip
"""Flags that change the division in ways that are not computed."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    algorithm: str = "none"
    budget: int | None = None
    """Nodes besides the root; None without a tree to verify."""
    block_size: int = 16
    context_length: int = _CONTEXT_LENGTH
    mem_fraction_static: float | None = None
    max_running_requests: int | None = None
    max_total_tokens: int | None = None
    page_size: int = 1
    kv_cache_dtype: str = "auto"
    chunked_prefill_size: int | None = None
    cuda_graph_max_bs_decode: int | None = None
    disable_radix_cache: bool = False
    disable_overlap_schedule: bool = False
    disable_cuda_graph: bool = False
    disable_decode_cuda_graph: bool = False
    disable_prefill_cuda_graph: bool = False
    language_only: bool = False
    max_mamba_cache_size: int | None = None
    mamba_full_memory_ratio: float = 0.9
    mamba_radix_cache_strategy: str = "auto"
    mamba_ssm_dtype: str | None = None
    uncounted: tuple[str, ...] = ()
    """Those of UNCOUNTED that the service sets."""

    @classmethod
    def of(cls, spec: ServiceSpec) -> Self:
        """What a service asks of its engine.

        Raises UsageError for a value that is no number where one belongs.
        """
        flags = {**dict(spec.engine), **_words(spec.extra_args)}
        tree = spec.tree if spec.tree is not None and spec.tree.mode == "tree" else None
        requests = _number(flags, "max_running_requests")
        if requests is None and spec.algorithm != "none":
            requests = _SPECULATIVE_REQUESTS
        return cls(
            algorithm=spec.algorithm,
            budget=tree.budget if tree else None,
            block_size=spec.block_size or 16,
            context_length=_number(flags, "context_length") or _CONTEXT_LENGTH,
            mem_fraction_static=_fraction(flags, "mem_fraction_static"),
            page_size=_number(flags, "page_size") or 1,
            kv_cache_dtype=flags.get("kv-cache-dtype", "auto"),
            mamba_full_memory_ratio=_fraction(flags, "mamba_full_memory_ratio") or 0.9,
            mamba_radix_cache_strategy=flags.get("mamba-radix-cache-strategy", "auto"),
            mamba_ssm_dtype=flags.get("mamba-ssm-dtype"),
            uncounted=_uncounted(flags),
            max_running_requests=requests,
            max_total_tokens=_number(flags, "max_total_tokens"),
            chunked_prefill_size=_number(flags, "chunked_prefill_size"),
            cuda_graph_max_bs_decode=_number(flags, "cuda_graph_max_bs_decode"),
            max_mamba_cache_size=_number(flags, "max_mamba_cache_size"),
            **{name.replace("-", "_"): name in flags for name in _SWITCHES},
        )

    @property
    def tree(self) -> bool:
        """Whether a tree is verified; shadow mode verifies a chain."""
        return self.budget is not None

    @property
    def rows(self) -> int:
        """What the target computes for a request in a decode step: nodes of the tree, a block."""
        if self.budget is not None:
            return self.budget + 1
        return self.block_size if self.algorithm != "none" else 1

    @property
    def kv_itemsize(self) -> int:
        """Bytes of a number in the KV cache; models in float32 are served in float16."""
        return 1 if self.kv_cache_dtype.startswith("fp8") else 2

    @property
    def decode_graphs(self) -> bool:
        return not (self.disable_cuda_graph or self.disable_decode_cuda_graph)

    @property
    def prefill_graphs(self) -> bool:
        return not (self.disable_cuda_graph or self.disable_prefill_cuda_graph)

    def ssm_itemsize(self, target: TargetShape) -> int:
        """Bytes of a number of a recurrent state (configs/mamba_utils.mamba2_state_dtype)."""
        return _ITEMSIZES.get(self.mamba_ssm_dtype or target.ssm_dtype, 4)

    def slots_per_request(self, target: TargetShape) -> int:
        """States that the prefix cache sets aside per request (_calculate_mamba_ratio)."""
        if self.disable_radix_cache:
            return 1
        strategy, overlap = self.mamba_radix_cache_strategy, not self.disable_overlap_schedule
        listed = target.architecture in _EXTRA_BUFFER or self.algorithm == "DDTREE"
        if strategy == "auto" and overlap and listed:
            strategy = "extra_buffer"
        if strategy == "extra_buffer":
            return 5 if overlap else 4
        return 4 if strategy == "extra_buffer_lazy" else 3

    def prefill_tokens(self, capacity: int) -> int:
        """Tokens of a prefill pass, by the GPU's memory in bytes unless it is set."""
        chunk = self.chunked_prefill_size or _defaults(capacity)[0]
        return chunk if chunk > 0 else 16384  # --max-prefill-tokens

    def captured(self, capacity: int) -> int:
        """The largest decode batch that CUDA graphs are captured for."""
        return self.cuda_graph_max_bs_decode or _defaults(capacity)[1]


def _defaults(capacity: int) -> tuple[int, int]:
    for limit, chunk, batch in _BY_MEMORY:
        if capacity < limit * GIB:
            return chunk, batch
    return _LARGEST


def _uncounted(flags: Mapping[str, str]) -> tuple[str, ...]:
    found = [name for name in UNCOUNTED if name in flags]
    if not flags.get("kv-cache-dtype", "auto").startswith(("auto", "bf", "fp8")):
        found.append("kv-cache-dtype")
    return tuple(f"--{name}" for name in found)


def _words(words: tuple[str, ...]) -> dict[str, str]:
    """`--name value` and `--name=value`; a flag without a value has an empty one."""
    found: dict[str, str] = {}
    name = None
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            name = _ALIASES.get(name, name)
            found[name] = value
        elif name is not None and not found[name]:
            found[name] = word
    return found


def _number(flags: Mapping[str, str], field: str) -> int | None:
    return _value(flags, field, int)


def _fraction(flags: Mapping[str, str], field: str) -> float | None:
    return _value(flags, field, float)


def _value(flags: Mapping[str, str], field: str, kind: type[_Number]) -> _Number | None:
    text = flags.get(field.replace("_", "-"))
    if text is None:
        return None
    try:
        return kind(text)
    except ValueError:
        flag = f"--{field.replace('_', '-')}"
        raise UsageError(
            f"{flag} is {text!r}, which is no number", mend="see engine in the service's profile"
        ) from None
