"""SGLang's recurrent kernels on our trees: a node is what the chain of its own path would be.

Bit for bit, output and state, for the gated DeltaNet and for the convolution before it. With the
parent links left out the same comparison must fail.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from sglang.kernels.ops.attention.fla.fused_sigmoid_gating_recurrent import (
    fused_sigmoid_gating_delta_rule_update,
)
from sglang.kernels.ops.mamba.causal_conv1d_triton import causal_conv1d_update
from sglang.srt.speculative.ddtree.tree import DraftTree, TreeShape

from tests.sglang_cpu.device import DEVICE
from tests.sglang_cpu.test_tree import built, candidates

BATCH, WIDTH = 2, 4
QK_HEADS, V_HEADS, K_DIM, V_DIM = 1, 2, 16, 16
CHANNELS = 2 * QK_HEADS * K_DIM + V_HEADS * V_DIM
SLOTS = torch.tensor([3, 0], dtype=torch.int32)


@dataclass
class Links:
    """What the verify pass tells the kernels of a batch of trees."""

    next_token: torch.Tensor
    next_sibling: torch.Tensor
    parents: torch.Tensor


@dataclass
class Layer:
    """Weights and committed states of one layer, drawn at random."""

    conv_weight: torch.Tensor
    conv_states: torch.Tensor
    states: torch.Tensor
    a_log: torch.Tensor
    dt_bias: torch.Tensor

    @classmethod
    def drawn(cls, generator: torch.Generator) -> Layer:
        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator)

        return cls(
            normal(CHANNELS, WIDTH),
            normal(4, CHANNELS, WIDTH - 1),
            normal(4, V_HEADS, V_DIM, K_DIM),
            normal(V_HEADS),
            normal(V_HEADS),
        )

    def convolve(
        self, rows: torch.Tensor, slots: torch.Tensor, links: Links | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs and windows of `rows` [batch, nodes, channels]; a chain without `links`."""
        batch, nodes, _ = rows.shape
        windows = torch.zeros((batch, nodes, CHANNELS, WIDTH - 1))
        tree = {}
        if links is not None:
            links.parents = torch.full((batch, nodes), -7, dtype=torch.int64)
            tree = {
                "retrieve_next_token": links.next_token,
                "retrieve_next_sibling": links.next_sibling,
                "retrieve_parent_token": links.parents,
            }
        out = causal_conv1d_update(
            rows.transpose(1, 2).contiguous(),
            self.conv_states.clone(),
            self.conv_weight,
            None,
            "silu",
            conv_state_indices=slots,
            intermediate_conv_window=windows,
            intermediate_state_indices=torch.arange(batch, dtype=torch.int32),
            **tree,
        )
        return out.transpose(1, 2).contiguous(), windows

    def recur(
        self, rows: torch.Tensor, gates: torch.Tensor, slots: torch.Tensor, links: Links | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs and states of convolved `rows` [batch, nodes, channels]."""
        batch, nodes, _ = rows.shape
        flat = rows.reshape(1, batch * nodes, CHANNELS)
        q, k, v = flat.split([QK_HEADS * K_DIM, QK_HEADS * K_DIM, V_HEADS * V_DIM], dim=-1)
        states = torch.zeros((batch, nodes, V_HEADS, V_DIM, K_DIM))
        out = fused_sigmoid_gating_delta_rule_update(
            A_log=self.a_log,
            dt_bias=self.dt_bias,
            q=q.reshape(1, -1, QK_HEADS, K_DIM).contiguous(),
            k=k.reshape(1, -1, QK_HEADS, K_DIM).contiguous(),
            v=v.reshape(1, -1, V_HEADS, V_DIM).contiguous(),
            a=gates[..., 0].reshape(-1, V_HEADS).contiguous(),
            b=gates[..., 1].reshape(-1, V_HEADS).contiguous(),
            initial_state_source=self.states.clone(),
            initial_state_indices=slots,
            cu_seqlens=torch.arange(0, batch * nodes + 1, nodes, dtype=torch.int32),
            use_qk_l2norm_in_kernel=True,
            softplus_beta=1.0,
            softplus_threshold=20.0,
            disable_state_update=True,
            intermediate_states_buffer=states,
            intermediate_state_indices=torch.arange(batch, dtype=torch.int32),
            cache_steps=nodes,
            retrieve_parent_token=None if links is None else links.parents,
        )
        return out.view(batch, nodes, V_HEADS, V_DIM), states


def leaf_paths(tree: DraftTree, request: int) -> list[list[int]]:
    """From the root to each node without children."""
    parents = tree.parents[request].tolist()
    paths = []
    for leaf in set(range(len(parents))) - set(parents):
        path = [leaf]
        while parents[path[-1]] >= 0:
            path.append(parents[path[-1]])
        paths.append(path[::-1])
    return paths


def chain_links(nodes: int) -> Links:
    following = torch.arange(1, nodes + 1)
    following[-1] = -1
    alone = torch.full((1, nodes), -1)
    return Links(following[None], alone, torch.empty(0))


@pytest.fixture(scope="module", params=[8, 17])
def verified(request: pytest.FixtureRequest) -> tuple[DraftTree, Layer, torch.Tensor, torch.Tensor]:
    """Two trees, a layer, and random inputs and gates of their nodes."""
    shape = TreeShape(request.param, depth=15, cap=4, seed=3)
    tree = built(shape, *candidates(shape, batch=BATCH, seed=2), batch=BATCH)
    generator = torch.Generator(DEVICE).manual_seed(0)
    layer = Layer.drawn(generator)
    rows = torch.randn((BATCH, shape.nodes, CHANNELS), generator=generator)
    gates = torch.randn((BATCH, shape.nodes, V_HEADS, 2), generator=generator)
    return tree, layer, rows, gates


def test_every_node_is_the_end_of_the_chain_of_its_path(
    verified: tuple[DraftTree, Layer, torch.Tensor, torch.Tensor],
) -> None:
    tree, layer, rows, gates = verified
    links = Links(tree.next_token, tree.next_sibling, torch.empty(0))
    convolved, windows = layer.convolve(rows, SLOTS, links)
    assert torch.equal(links.parents[:, 1:], tree.parents[:, 1:].to(torch.int64))
    out, states = layer.recur(convolved, gates, SLOTS, links)
    branches = 0
    for request in range(BATCH):
        slot = SLOTS[request : request + 1]
        for path in leaf_paths(tree, request):
            branches += 1
            inputs = rows[request, path][None]
            chain, chain_windows = layer.convolve(inputs, slot, chain_links(len(path)))
            # Without links the same sums are taken in another order.
            linear, _ = layer.convolve(inputs, slot, None)
            torch.testing.assert_close(chain, linear, atol=1e-5, rtol=1e-5)
            assert torch.equal(convolved[request, path], chain[0])
            assert torch.equal(windows[request, path], chain_windows[0])
            expected, expected_states = layer.recur(chain, gates[request, path][None], slot, None)
            assert torch.equal(out[request, path], expected[0])
            assert torch.equal(states[request, path], expected_states[0])
    assert branches > BATCH, "the trees must branch"


def test_without_parent_links_siblings_leak_into_each_other(
    verified: tuple[DraftTree, Layer, torch.Tensor, torch.Tensor],
) -> None:
    tree, layer, rows, gates = verified
    links = Links(tree.next_token, tree.next_sibling, torch.empty(0))
    convolved, _ = layer.convolve(rows, SLOTS, links)
    _, states = layer.recur(convolved, gates, SLOTS, links)
    as_chain, _ = layer.convolve(rows, SLOTS, None)
    _, chain_states = layer.recur(convolved, gates, SLOTS, None)
    assert (as_chain - convolved).abs().max() > 0.1
    assert (chain_states - states).abs().max() > 0.1
