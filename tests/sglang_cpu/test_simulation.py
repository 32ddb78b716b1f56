"""Forced accept lengths off the spine: as many nodes, none of them where they belong."""

from __future__ import annotations

import pytest
import torch
from sglang.srt.speculative.ddtree import simulation
from sglang.srt.speculative.ddtree.accept import accepted_path
from sglang.srt.speculative.ddtree.simulation import PATH_VARIABLE, Simulation
from sglang.srt.speculative.ddtree.tree import TreeShape

from tests.sglang_cpu.device import DEVICE
from tests.sglang_cpu.test_tree import PREFIXES, built, candidates

SHAPE = TreeShape(16, depth=15, cap=4, seed=5)


def simulate(monkeypatch: pytest.MonkeyPatch, length: float, path: str | None) -> None:
    monkeypatch.setattr(simulation, "SIMULATE_ACC_LEN", length)
    if path is not None:
        monkeypatch.setenv(PATH_VARIABLE, path)


def test_the_last_nodes_take_the_place_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch, 5, "off-spine")
    asked = Simulation.asked_for(SHAPE)
    assert asked is not None
    lens = torch.tensor([5, 4, 1], dtype=torch.int32)
    first = torch.full((3, SHAPE.path), -1, dtype=torch.int32)
    for request, length in enumerate(lens.tolist()):
        root = request * SHAPE.nodes
        first[request, :length] = torch.arange(root, root + length, dtype=torch.int32)
    moved = asked.moved(first, lens)
    assert moved[:, 0].tolist() == [0, 17, 34]
    assert moved[0, :6].tolist() == [0, 13, 14, 15, 16, -1]
    assert moved[1, :5].tolist() == [17, 17 + 14, 17 + 15, 17 + 16, -1]
    assert (moved[2, 1:] == -1).all()

    tree = built(SHAPE, *candidates(SHAPE, seed=1))
    path = accepted_path(
        tree,
        SHAPE,
        accept_index=moved,
        accept_lens=lens,
        predict=torch.full((3 * SHAPE.nodes,), 100, dtype=torch.int32),
        prefix_lens=PREFIXES,
    )
    assert path.off_spine.device.type == DEVICE
    assert path.off_spine.tolist() == [4, 3, 0]
    assert (path.from_slots[0, 1:5] != path.to_slots[0, 1:5]).all()


@pytest.mark.parametrize(("length", "path"), [(-1, "off-spine"), (5, "spine"), (5, None)])
def test_nothing_is_moved_unless_asked(
    monkeypatch: pytest.MonkeyPatch, length: float, path: str | None
) -> None:
    simulate(monkeypatch, length, path)
    assert Simulation.asked_for(SHAPE) is None


@pytest.mark.parametrize(
    ("length", "path", "says"),
    [
        (6.5, "spine", "beyond the chain seed of 5"),
        (5, "sideways", "must be spine or off-spine"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    monkeypatch: pytest.MonkeyPatch, length: float, path: str, says: str
) -> None:
    simulate(monkeypatch, length, path)
    with pytest.raises(ValueError, match=says):
        Simulation.asked_for(SHAPE)


def test_a_tree_without_room_beside_its_seed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch, 5, "off-spine")
    with pytest.raises(ValueError, match="needs 4 nodes beside the chain seed of 5"):
        Simulation.asked_for(TreeShape(8, depth=15, cap=4, seed=5))
