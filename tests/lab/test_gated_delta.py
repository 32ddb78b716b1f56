"""The unrolled gated delta rule against the recurrence that it unrolls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ddtree_ops_cli.lab.ancestry import Ancestry
from ddtree_ops_cli.lab.gated_delta import (
    DeltaState,
    DeltaTrace,
    causal_conv,
    delta_rule,
    state_after,
)

HEADS, KEY, VALUE = 3, 8, 5
TREES = {
    "root alone": [-1],
    "chain": [-1, 0, 1, 2, 3, 4],
    "star": [-1, 0, 0, 0, 0],
    "siblings apart in the array": [-1, 0, 1, 0, 1, 3, 2, 4, 3, 7],
    "two long branches": [-1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
}


def parent_by_parent(
    query: Any, key: Any, value: Any, log_gate: Any, beta: Any, memory: Any, parents: list[int]
) -> tuple[Any, Any]:
    """The recurrence node by node, in float64: every node starts from its parent's state."""
    states, outputs = [], []
    for node, parent in enumerate(parents):
        state = memory.astype(np.float64) if parent < 0 else states[parent]
        state = state * np.exp(log_gate[:, node].astype(np.float64))[:, None, None]
        for_key = np.einsum("hkv,hk->hv", state, key[:, node])
        update = beta[:, node, None] * (value[:, node] - for_key)
        states.append(state + np.einsum("hk,hv->hkv", key[:, node], update))
        outputs.append(np.einsum("hkv,hk->hv", states[-1], query[:, node]))
    return np.stack(outputs, axis=1), states


def random_inputs(random: np.random.Generator, count: int) -> list[Any]:
    def normal(*shape: int) -> Any:
        return random.standard_normal(shape).astype(np.float32)

    key = normal(HEADS, count, KEY)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    # Gates from nearly open to nearly closed, as A_log of real checkpoints spans.
    log_gate = -np.exp(2 * normal(HEADS, count))
    beta = 1 / (1 + np.exp(-normal(HEADS, count)))
    query, value, memory = (
        normal(HEADS, count, KEY),
        normal(HEADS, count, VALUE),
        normal(HEADS, KEY, VALUE),
    )
    return [query, key, value, log_gate, beta, memory]


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES.keys())
def test_every_node_continues_its_parent(parents: list[int]) -> None:
    inputs = random_inputs(np.random.default_rng(len(parents)), len(parents))
    ancestry = Ancestry.of(np.array(parents))
    expected, states = parent_by_parent(*inputs, parents)
    output, updates, log_decay = delta_rule(*inputs, ancestry)
    assert output.dtype == np.float32
    assert np.abs(output - expected).max() < 1e-5

    key, memory = inputs[1], inputs[-1]
    trace = DeltaTrace(np.zeros((len(parents), 3, 1), np.float32), key, updates, log_decay)
    before = DeltaState(np.zeros((3, 1), np.float32), memory)
    for node in range(len(parents)):
        found = state_after(trace, before, node, ancestry)
        assert np.abs(found.memory - states[node]).max() < 1e-5
        assert found.memory.dtype == np.float32


def test_a_run_of_one_token_stays_exact() -> None:
    """64 equal keys written with full strength: the worst case for the triangular system."""
    count = 64
    query, key, value, log_gate, beta, memory = random_inputs(np.random.default_rng(1), count)
    key[:] = key[:, :1]
    log_gate[:] = -1e-3
    beta[:] = 0.99
    inputs = [query, key, value, log_gate, beta, memory]
    parents = list(range(-1, count - 1))
    expected, _ = parent_by_parent(*inputs, parents)
    output, _, _ = delta_rule(*inputs, Ancestry.chain(count))
    assert np.abs(output - expected).max() < 1e-5


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("parents", TREES.values(), ids=TREES.keys())
def test_the_convolution_sees_a_node_s_ancestors_and_then_the_committed_window(
    parents: list[int], width: int
) -> None:
    random = np.random.default_rng(width)
    columns = random.standard_normal((len(parents), 6)).astype(np.float32)
    window = random.standard_normal((width - 1, 6)).astype(np.float32)
    weight = random.standard_normal((width, 6)).astype(np.float32)
    output, windows = causal_conv(columns, window, weight, Ancestry.of(np.array(parents)))

    for node in range(len(parents)):
        path, at = [], node
        while at >= 0:
            path.insert(0, at)
            at = parents[at]
        seen = np.concatenate([window, columns[path]])[-width:]
        summed = (seen * weight).sum(axis=0)
        assert np.allclose(output[node], summed / (1 + np.exp(-summed)), atol=1e-6)
        assert (windows[node] == seen[1:]).all()
