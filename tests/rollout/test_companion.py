"""Where the second service of a comparison goes, decided from what is on the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from ddtree_ops_cli.bundled import bundled
from ddtree_ops_cli.profiles.locate import Library
from ddtree_ops_cli.rollout.companion import Companion, find_companion
from ddtree_ops_cli.services.runtimes import Instance
from ddtree_ops_cli.services.runtimes.process import ProcessRuntime
from tests.services.test_labels import LABELS

TREE = Instance(
    dataclasses.replace(LABELS, host="lab", service="ddtree", model="lab-pair", gpu=0),
    "running", "pid 1", "http://127.0.0.1:1", 0.0, (), {},
)  # fmt: skip


class Host(ProcessRuntime):
    """This machine, with services and GPUs as a test says."""

    there: tuple[Instance, ...] = (TREE,)
    busy: Mapping[int, str] = {}
    models: tuple[str, ...] = ("A", "B", "A", "A")

    def instances(self) -> list[Instance]:
        return list(self.there)

    def held(self) -> Mapping[int, str]:
        return self.busy

    def kinds(self) -> Mapping[int, str]:
        return dict(enumerate(self.models))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Host("lab", gpus=4)


def found(host: Host, *, may_start: bool = True, may_take_turns: bool = False) -> Companion | None:
    library = Library([bundled("profiles")])
    return find_companion(
        library, library.host("lab"), host, TREE, service="dflash-linear",
        may_start=may_start, may_take_turns=may_take_turns,
    )  # fmt: skip


def test_it_goes_to_the_first_free_gpu_of_the_same_kind(host: Host) -> None:
    companion = found(host)
    assert companion is not None
    assert (companion.gpu, companion.in_turns) == (2, False)
    host.busy = {2: "python3 of op"}
    moved = found(host)
    assert moved is not None
    assert moved.gpu == 3
    assert moved.start is not None
    assert moved.start.playbook == "deploy"


def test_a_free_gpu_of_another_kind_is_no_place_for_it(host: Host) -> None:
    host.models = ("A", "B")
    assert found(host) is None


def test_turns_are_taken_only_where_no_like_gpu_is_free_and_only_if_allowed(host: Host) -> None:
    assert found(host, may_start=False, may_take_turns=True) is None
    free = found(host, may_take_turns=True)
    assert free is not None
    assert not free.in_turns
    host.models = ("A", "B")
    turns = found(host, may_take_turns=True)
    assert turns is not None
    assert (turns.gpu, turns.in_turns) == (0, True)
    assert turns.start is not None
    assert turns.start.playbook == "replace"


def test_one_that_runs_is_taken_as_it_is(host: Host) -> None:
    labels = dataclasses.replace(TREE.labels, service="mine", algorithm="DFLASH", gpu=1)
    mine = dataclasses.replace(TREE, labels=labels)
    host.there = (TREE, mine)
    assert found(host, may_start=False) == Companion("dflash-linear", running=mine)
    host.there = (TREE, dataclasses.replace(mine, state="dead"))
    assert found(host, may_start=False) is None
