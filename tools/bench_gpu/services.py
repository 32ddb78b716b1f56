"""The servers of a measurement: command line, environment and memory of each. Pure."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ddtree_ops_cli.services.engine_options import EngineOptions
from ddtree_ops_cli.services.memory import divide
from ddtree_ops_cli.services.sglang_args import engine_args
from ddtree_ops_cli.services.shapes import GIB, MIB, Pair
from ddtree_ops_cli.services.spec import ServiceSpec, Tree

BLOCK = 16
"""Rows that a linear chain of both drafters verifies."""
TOPK_CAP = 8
NCCL_PORT = 500
"""Above the port of the server."""
SLOTS_A_REQUEST = 5
"""Committed states that SGLang keeps for each request where it also keeps some for prefix reuse
(kv_cache_configurator.py, _calculate_mamba_ratio, overlap on)."""
ALLOWANCE_GIB = 1.0
"""For activations, workspaces and graphs of one server; not a measurement."""


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    target: Path
    drafter: Path
    dummy: bool
    """Random weights: only the configurations exist."""
    context: int
    requests: int
    """That run at the same time."""
    tokens: int
    """Of the cache of keys and values."""
    accept_length: int | None = None
    """Forced (SGLANG_SIMULATE_ACC_LEN), because random weights accept nothing."""


@dataclass(frozen=True, slots=True)
class Device:
    index: int
    uuid: str
    name: str
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Service:
    """One server on one GPU."""

    model: Model
    budget: int | None
    """None: linear."""
    device: Device
    port: int
    off_spine: bool = False
    """Whether the forced acceptance leaves the spine."""

    @property
    def arm(self) -> str:
        return "linear" if self.budget is None else "tree"

    @property
    def title(self) -> str:
        kind = "linear" if self.budget is None else f"tree-{self.budget}"
        side = "-off-spine" if self.off_spine else ""
        return f"{self.model.name}-{kind}{side}-gpu{self.device.index}"

    @property
    def rows(self) -> int:
        """That one verify pass has for one request."""
        return BLOCK if self.budget is None else self.budget + 1

    @property
    def argv(self) -> tuple[str, ...]:
        return (sys.executable, "-m", "sglang.launch_server", *engine_args(self.spec))

    def environment(self, outer: Mapping[str, str], sglang: Path) -> dict[str, str]:
        """Pinned by UUID, so that no order of devices can move it to another GPU."""
        path = [str(sglang), *filter(None, [outer.get("PYTHONPATH")])]
        forced = {}
        if self.model.accept_length is not None:
            forced["SGLANG_SIMULATE_ACC_LEN"] = str(self.model.accept_length)
        if self.off_spine:
            forced["DDTREE_SIMULATE_PATH"] = "off-spine"
        return {
            **outer,
            **forced,
            "CUDA_VISIBLE_DEVICES": self.device.uuid,
            "PYTHONPATH": ":".join(path),
            "PYTHONUNBUFFERED": "1",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
        }

    @property
    def spec(self) -> ServiceSpec:
        model = self.model
        slots = SLOTS_A_REQUEST * model.requests
        engine = {
            "attention-backend": "triton",
            "chunked-prefill-size": "2048",
            "context-length": str(model.context),
            "cuda-graph-max-bs-decode": str(model.requests),
            "grammar-backend": "none",
            "max-mamba-cache-size": str(slots),
            "max-running-requests": str(model.requests),
            "max-total-tokens": str(model.tokens),
            # The pools have explicit sizes, so this only must not be in their way. It is a share
            # of what is free when the server starts, and the other server may start just then.
            "mem-fraction-static": "0.98",
            # Several servers that start at once would draw the same free port.
            "nccl-port": str(self.port + NCCL_PORT),
            "sampling-backend": "pytorch",
            "speculative-draft-attention-backend": "triton",
        }
        if model.dummy:
            engine["load-format"] = "dummy"
        return ServiceSpec(
            host="bench-gpu",
            service=self.title,
            model=model.name,
            gpu=self.device.index,
            bind="127.0.0.1",
            port=self.port,
            served_name=model.name,
            target=str(model.target),
            target_revision=None,
            drafter=str(model.drafter),
            drafter_revision=None,
            block_size=BLOCK,
            algorithm="DFLASH" if self.budget is None else "DDTREE",
            tree=self._tree,
            engine=tuple(sorted(engine.items())),
            extra_args=("--disable-prefill-cuda-graph",),
        )

    @property
    def _tree(self) -> Tree | None:
        if self.budget is None:
            return None
        seed = None
        if self.model.accept_length is not None:
            # The default, but not shorter than the path that is forced along the spine.
            forced = math.ceil(self.model.accept_length) - 1
            seed = min(max(self.budget // 4, forced), BLOCK - 1, self.budget)
        return Tree(
            budget=self.budget,
            topk_cap=TOPK_CAP,
            chain_seed=seed,
            mode="tree",
            allow_hybrid_unsafe=False,
        )


@dataclass(frozen=True, slots=True)
class Need:
    """Device memory of one server, GiB, as the project's memory plan computes it."""

    weights: float
    node_states: float
    """One for each row of a verify pass, for each request and one of padding."""
    states: float
    """Committed ones, likewise with padding."""
    cache: float
    rest: float
    """CUDA context and buffers as computed, activations and graphs as allowed for."""

    @property
    def total(self) -> float:
        return self.weights + self.node_states + self.states + self.cache + self.rest


def need(service: Service, pair: Pair) -> Need:
    capacity = service.device.memory_mib * MIB
    found = divide(capacity, pair, EngineOptions.of(service.spec))
    buffers = sum(size for _, size in found.buffers)
    return Need(
        weights=(found.target_weights + found.drafter_weights) / GIB,
        node_states=found.verify_states / GIB,
        states=found.recurrent_states / GIB,
        cache=(found.target_kv + found.drafter_kv) / GIB,
        rest=(found.runtime + buffers) / GIB + ALLOWANCE_GIB,
    )
