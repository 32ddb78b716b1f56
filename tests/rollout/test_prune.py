"""Which kept services are forgotten."""

from __future__ import annotations

import dataclasses

import pytest

from ddtree_ops_cli.rollout.prune import choose
from ddtree_ops_cli.services.runtimes import Instance
from tests.rollout.test_plan import running, spec


def kept(identity: str, stopped_at: float, gpu: int = 1) -> Instance:
    one = running(spec())
    labels = dataclasses.replace(one.labels, gpu=gpu)
    return dataclasses.replace(
        one, labels=labels, identity=identity, state="kept", stopped_at=stopped_at
    )


@pytest.mark.parametrize(
    ("older_than_s", "latest_too", "forgotten"),
    [
        (0, False, ["old", "older"]),
        (50, False, ["older"]),
        (0, True, ["new", "old", "older", "other"]),
        (1000, True, []),
    ],
)
def test_age_decides_and_the_latest_of_each_gpu_is_spared(
    older_than_s: float, latest_too: bool, forgotten: list[str]
) -> None:
    instances = [kept("new", 90), kept("old", 70), kept("older", 10), kept("other", 20, gpu=2)]
    found = choose(instances, older_than_s=older_than_s, now=100, latest_too=latest_too)
    assert [instance.identity for instance in found] == forgotten


def test_what_was_stopped_before_the_hosts_clock_was_set_back_is_not_kept_for_ever() -> None:
    future = kept("future", 5000)
    assert choose([future], older_than_s=0, now=100, latest_too=True) == [future]
    assert choose([future], older_than_s=1, now=100, latest_too=True) == []
