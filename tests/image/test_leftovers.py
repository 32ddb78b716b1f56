"""Which containers are left over, and which somebody still wants; from data alone."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from ddtree_ops_cli.image.leftovers import LOOK_S, doctor_labels, leftovers
from ddtree_ops_cli.rollout.lock import is_gone, me

NOW = 1_000_000.0
OTHER = "ann@desk"


def container(state: str = "running", *, age_s: float = 5, **labels: str) -> dict[str, Any]:
    named = {f"dev.ddtree.{name}": value for name, value in labels.items()}
    return {"Id": "c1", "Names": ["/one"], "State": state, "Created": NOW - age_s, "Labels": named}


def doctor(who: str, pid: int, *, age_s: float = 5) -> dict[str, Any]:
    return container(role="doctor", client=who, client_pid=str(pid), age_s=age_s)


def left(one: dict[str, Any], *, building: bool = False) -> list[str]:
    return [found.what for found in leftovers([one], building=building, now=NOW)]


@pytest.fixture(scope="module")
def ended() -> int:
    """The number of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_the_doctor_of_a_command_that_has_ended_is_left_over(ended: int) -> None:
    assert left(doctor(me(), ended)) == ["doctor"]
    assert left(doctor(me(), os.getpid())) == []


def test_somebody_elses_doctor_is_until_no_command_can_wait_for_it(ended: int) -> None:
    assert left(doctor(OTHER, ended)) == []
    assert left(doctor(OTHER, ended, age_s=LOOK_S)) == []
    assert left(doctor(OTHER, ended, age_s=LOOK_S + 100)) == ["doctor"]


def test_the_labels_of_a_doctor_say_whose_it_is() -> None:
    labels = doctor_labels()
    assert (labels["dev.ddtree.client"], labels["dev.ddtree.client_pid"]) == (
        me(),
        str(os.getpid()),
    )
    assert left({**container(), "Labels": labels}) == []


@pytest.mark.parametrize("state", ["created", "exited", "dead"])
def test_an_ended_step_of_a_build_is_left_over_for_who_holds_the_lock_alone(state: str) -> None:
    assert left(container(state, stage="build"), building=True) == ["build step"]
    assert left(container(state, stage="build"), building=False) == []


@pytest.mark.parametrize(
    "one",
    [
        container("running", stage="build"),
        container("paused", stage="build"),
        container("exited", stage="image"),
        container("exited"),
        container("exited", age_s=9e9, service="ddtree"),
        {**container("exited"), "Labels": None},
    ],
)
def test_what_runs_or_is_a_service_or_anybody_elses_is_not(one: dict[str, Any]) -> None:
    assert left(one, building=True) == []


def test_a_process_of_another_machine_is_never_thought_gone(ended: int) -> None:
    assert is_gone(me(), ended)
    assert not is_gone(OTHER, ended)
