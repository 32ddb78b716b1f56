"""Which comparison runs where, from memory alone."""

from __future__ import annotations

import pytest

from ddtree_ops_cli.errors import DdtreeError
from tools.bench_gpu.placement import Match, place
from tools.bench_gpu.services import Device

H200 = [Device(index, f"GPU-{index}", "NVIDIA H200", 143_771) for index in range(2)]
RTX = [Device(index, f"GPU-{index}", "RTX PRO 6000", 97_887) for index in range(2)]
LINEAR = 62.0
TREES = {16: 62.2, 32: 66.8, 64: 76.0}


def spine(*budgets: int) -> list[tuple[int, bool]]:
    return [(budget, False) for budget in budgets]


def test_both_arms_share_a_gpu_that_has_room_and_matches_take_turns() -> None:
    found = place(H200, spine(64, 16, 32), LINEAR, TREES)
    zero, one = H200
    assert found.lanes == (
        (Match(16, zero, zero), Match(64, zero, zero)),
        (Match(32, one, one),),
    )
    assert found.across == ()


def test_one_gpu_with_room_takes_all_of_them() -> None:
    (lane,) = place(H200[:1], spine(16, 32), LINEAR, TREES).lanes
    assert [match.budget for match in lane] == [16, 32]


def test_without_room_for_both_the_arms_take_a_gpu_each() -> None:
    found = place(RTX, spine(16, 32), LINEAR, TREES)
    assert found.lanes == ()
    assert found.across == (Match(16, *RTX), Match(32, *RTX))


def test_a_budget_that_does_not_fit_beside_linear_goes_across_alone() -> None:
    tight = {**TREES, 64: 90.0}
    found = place(H200, spine(16, 64), LINEAR, tight)
    assert found.lanes == ((Match(16, H200[0], H200[0]),),)
    assert found.across == (Match(64, *H200),)


def test_on_the_only_gpu_without_room_for_both_the_arms_take_turns() -> None:
    found = place(RTX[:1], spine(16), LINEAR, TREES)
    assert (found.lanes, found.across) == ((), ())
    assert found.turns == (Match(16, RTX[0], RTX[0]),)


@pytest.mark.parametrize("devices", [RTX, RTX[:1]])
def test_a_server_that_fits_on_no_gpu_is_refused_with_the_figures(devices: list[Device]) -> None:
    with pytest.raises(DdtreeError, match="needs 120 GiB, more than the 96 GiB of one GPU"):
        place(devices, spine(128), LINEAR, {128: 120.0})


def test_off_the_spine_is_a_match_of_its_own() -> None:
    found = place(H200, [(32, False), (16, False), (16, True)], LINEAR, TREES)
    zero, one = H200
    assert found.lanes == (
        (Match(16, zero, zero), Match(32, zero, zero)),
        (Match(16, one, one, off_spine=True),),
    )
