"""Which kept services are forgotten."""

from __future__ import annotations

import dataclasses

import pytest

from ddtree_ops_cli.rollout.prune import reasons_to_spare
from ddtree_ops_cli.services.runtimes import Instance
from tests.rollout.test_plan import running, spec


def kept(identity: str, stopped_at: float, gpu: int = 1) -> Instance:
    one = running(spec())
    labels = dataclasses.replace(one.labels, gpu=gpu)
    return dataclasses.replace(
        one, labels=labels, identity=identity, state="kept", stopped_at=stopped_at
    )


def to_forget(instances: list[Instance], older_than_s: float, *, latest_too: bool) -> list[str]:
    reasons = reasons_to_spare(instances, older_than_s=older_than_s, now=100, latest_too=latest_too)
    return [i.identity for i, reason in zip(instances, reasons, strict=True) if not reason]


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
    assert to_forget(instances, older_than_s, latest_too=latest_too) == forgotten


def test_what_is_spared_is_spared_for_a_reason_that_names_the_option() -> None:
    found = reasons_to_spare(
        [kept("new", 90), kept("old", 70)], older_than_s=3600, now=100, latest_too=False
    )
    assert found == [
        "the latest of GPU 1 (--latest-too)",
        "stopped less than 1 h ago (--older-than)",
    ]


def test_what_was_stopped_before_the_hosts_clock_was_set_back_is_not_kept_for_ever() -> None:
    future = kept("future", 5000)
    assert to_forget([future], 0, latest_too=True) == ["future"]
    assert to_forget([future], 1, latest_too=True) == []
