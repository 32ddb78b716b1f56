"""Facts and spec in, steps out."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ddtree_ops_cli.bundled import bundled
from ddtree_ops_cli.errors import ProfileError
from ddtree_ops_cli.profiles.locate import Library
from ddtree_ops_cli.rollout.facts import Facts
from ddtree_ops_cli.rollout.operations import OPERATIONS, Change, Start
from ddtree_ops_cli.rollout.plan import plan, playbook_for
from ddtree_ops_cli.rollout.playbook import load, read
from ddtree_ops_cli.services.labels import Labels
from ddtree_ops_cli.services.runtimes import Instance, Launch
from ddtree_ops_cli.services.spec import Overrides, ServiceSpec, decide


def spec(budget: int = 16) -> ServiceSpec:
    library = Library([bundled("profiles")])
    return decide(
        library.host("lab"),
        library.service("ddtree"),
        library.model("lab-pair"),
        1,
        Overrides(budget=budget),
    )


def running(what: ServiceSpec) -> Instance:
    labels = Labels.of(what, engine="lab 0.1.0", deployer="op@desk")
    return Instance(labels, "running", "pid 4711", "http://127.0.0.1:31001", 0.0, ("engine",), {})


def from_another_image(instance: Instance) -> Instance:
    labels = dataclasses.replace(instance.labels, image_digest="sha256:other")
    return dataclasses.replace(instance, labels=labels)


@pytest.mark.parametrize(
    ("occupant", "healthy", "playbook"),
    [
        (None, False, "deploy"),
        (running(spec(16)), True, None),
        (running(spec(16)), False, "replace"),
        (running(spec(32)), True, "replace"),
        (dataclasses.replace(running(spec(16)), state="dead"), False, "replace"),
        (dataclasses.replace(running(spec(16)), proven=False), True, "replace"),
        (from_another_image(running(spec(16))), True, "replace"),
    ],
    ids=[
        "free",
        "as declared",
        "as declared but ill",
        "another budget",
        "dead",
        "left by a deploy that did not end",
        "the image's tag has moved",
    ],
)
def test_what_runs_on_the_gpu_decides_the_playbook(
    occupant: Instance | None, healthy: bool, playbook: str | None
) -> None:
    wanted = running(spec(16)).labels
    assert playbook_for(wanted, Facts(occupant, healthy, None, None)) == playbook


def start() -> Start:
    labels = Labels.of(spec(), engine="lab 0.1.0", deployer="op@desk")
    return Start(spec(), labels, Launch("lab 0.1.0", ("engine",), {}))


def test_a_replacement_stops_the_old_one_only_after_everything_that_can_be_checked() -> None:
    planned = plan(load("replace"), Change(running(spec(32)), start(), ready_timeout_s=60))
    assert [(step.does, step.changes) for step in planned.steps] == [
        ("check that the engine can take lab-pair with these options", False),
        ("check that 127.0.0.1:31001 is free", False),
        ("stop ddtree on GPU 1 (pid 4711) and keep it", True),
        ("start ddtree on GPU 1, port 31001", True),
        ("wait until it generates, 60 s at most", False),
        ("verify that it serves lab-pair, with a real completion", False),
        ("smoke it quickly: answers repeat, and each token is what a fresh prefill says", False),
    ]


@pytest.mark.parametrize("name", ["deploy", "forget", "replace", "rollback", "stop"])
def test_each_bundled_playbook_is_made_of_known_operations(name: str) -> None:
    playbook = load(name)
    assert playbook.steps
    assert {step.operation for step in playbook.steps} <= set(OPERATIONS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("steps: [", "while parsing a flow"),
        ("description: x\n", "not a playbook"),
        ("- start\n", "not a playbook"),
        ("description: x\nsteps:\n  - why: y\n", "not a playbook"),
    ],
)
def test_a_malformed_playbook_is_named_with_its_file(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(text)
    with pytest.raises(ProfileError, match=rf"odd\.yaml: {says}"):
        read(file)


def test_an_unknown_operation_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text("description: x\nsteps:\n  - operation: reboot\n")
    with pytest.raises(ProfileError, match="playbook odd: no operation reboot; there are: check"):
        plan(read(file), Change(previous=None, start=start()))
