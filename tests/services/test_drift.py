"""What was decided then against what the profiles say now."""

from __future__ import annotations

import dataclasses

import pytest

from ddtree_ops_cli.services.drift import Drift, drift
from ddtree_ops_cli.services.labels import Labels
from ddtree_ops_cli.services.spec import ServiceSpec
from tests.rollout.test_plan import spec


def labels(of: ServiceSpec) -> Labels:
    return Labels.of(of, engine="lab 0.1.0", deployer="op@desk")


def test_a_service_as_declared_has_no_drift() -> None:
    assert drift(labels(spec(16)), spec(16)) == []


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        (spec(32), Drift("tree.budget", 16, 32)),
        (dataclasses.replace(spec(), port=31009), Drift("port", 31001, 31009)),
        (
            dataclasses.replace(spec(), engine=(*spec().engine, ("page-size", "1"))),
            Drift("engine.page-size", None, "1"),
        ),
        (dataclasses.replace(spec(), extra_args=("--x",)), Drift("extra_args", [], ["--x"])),
    ],
    ids=["budget", "port", "a new option", "words"],
)
def test_each_difference_is_named_by_its_key(changed: ServiceSpec, found: Drift) -> None:
    assert drift(labels(spec(16)), changed) == [found]


def test_a_difference_reads_as_a_sentence() -> None:
    assert str(Drift("engine.page-size", None, "1")) == "engine.page-size unset, declared 1"
