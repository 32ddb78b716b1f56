"""Which service is measured, and what is said of one that should not be."""

from __future__ import annotations

import dataclasses
from typing import Literal

import pytest

from ddtree_ops_cli.bench.arms import choose, doubts, no_companion
from ddtree_ops_cli.bundled import bundled
from ddtree_ops_cli.engine_api.answers import ServerInfo
from ddtree_ops_cli.errors import Unhealthy, UsageError
from ddtree_ops_cli.profiles.load import Loaded
from ddtree_ops_cli.profiles.locate import Library
from ddtree_ops_cli.profiles.schema import HostProfile
from ddtree_ops_cli.services.runtimes import Instance
from tests.services.test_labels import LABELS


def instance(
    service: str, algorithm: str, gpu: int, state: Literal["running", "dead"] = "running"
) -> Instance:
    labels = dataclasses.replace(LABELS, service=service, algorithm=algorithm, gpu=gpu)
    return Instance(labels, state, f"pid {gpu}", f"http://127.0.0.1:{gpu}", 0.0, (), {})


TREE = instance("ddtree", "DDTREE", 0)
LINEAR = instance("dflash-linear", "DFLASH", 1)
OTHER_TREE = instance("ddtree-32", "DDTREE", 2)


def chosen(*found: Instance, service: str | None = None, against: str = "linear") -> Instance:
    return choose(found, host="lab", service=service, gpu=None, against=against)


def test_the_tree_is_measured_although_its_rival_runs_beside_it() -> None:
    assert chosen(LINEAR, TREE) is TREE


def test_two_trees_need_a_word_more() -> None:
    with pytest.raises(UsageError, match=r"several services fit: ddtree on GPU 0, ddtree-32 on"):
        chosen(TREE, OTHER_TREE)
    assert chosen(TREE, OTHER_TREE, service="ddtree-32") is OTHER_TREE


def test_linear_can_be_measured_against_plain_and_not_against_itself() -> None:
    assert chosen(TREE, LINEAR, service="dflash-linear", against="plain") is LINEAR
    with pytest.raises(UsageError, match="dflash-linear on GPU 1 is linear itself"):
        chosen(TREE, LINEAR, service="dflash-linear")


def test_a_dead_tree_is_unhealthy() -> None:
    with pytest.raises(Unhealthy, match=r"ddtree on GPU 0: its process ended; `ddtree logs lab`"):
        chosen(instance("ddtree", "DDTREE", 0, "dead"))


HOST = Library([bundled("profiles")]).host("lab")
SHUT = dataclasses.replace(HOST, value=HOST.value.model_copy(update={"temporary_services": False}))


@pytest.mark.parametrize(
    ("host", "free", "says"),
    [
        (
            SHUT,
            True,
            "its profile has temporary_services: false; `ddtree deploy lab --service plain --model "
            "lab-pair` starts one on a free GPU",
        ),
        (
            HOST,
            False,
            "no GPU of its kind is free; --alternate lets the two take turns on GPU 0, and takes "
            "ddtree away while it is not its turn",
        ),
        (
            SHUT,
            False,
            "its profile has temporary_services: false and no GPU of its kind is free; with "
            "temporary_services: true, --alternate lets the two take turns on GPU 0, and takes "
            "ddtree away while it is not its turn",
        ),
    ],
    ids=["not allowed", "no place", "neither"],
)
def test_a_missing_rival_is_named_with_what_the_operator_can_do(
    host: Loaded[HostProfile], free: bool, says: str
) -> None:
    assert str(no_companion(host, TREE, "plain", free=free)) == (
        "host lab: no plain of model lab-pair runs here, and none can be started for the "
        f"comparison: {says}"
    )


def test_a_tree_that_is_none_or_not_exact_raises_doubts() -> None:
    exact = ServerInfo("0.5.17", {"speculative_ddtree_state": "exact"}, ())
    unsafe = ServerInfo("0.5.17", {"speculative_ddtree_state": "unsafe"}, ())
    shadow = dataclasses.replace(
        TREE, labels=dataclasses.replace(TREE.labels, mode="shadow-linear")
    )
    assert doubts(TREE, exact) == []
    assert ["siblings share recurrent state" in line for line in doubts(TREE, unsafe)] == [True]
    assert ["only the spine" in line for line in doubts(shadow, exact)] == [True]
