"""What Docker says of containers, as Docker Engine 26.1 says it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ddtree_ops_cli.profiles.schema import HostProfile
from ddtree_ops_cli.services.inspection import how_it_ended, instance, kept_name, neighbour, own
from tests.services.test_labels import LABELS

HOST = HostProfile(
    description="a host", runtime="docker", address="gpu.example.com", user="ops", port=2222,
    model="pair",
)  # fmt: skip
ID = "3f2a9c1b7d5e" + 52 * "0"
ON_HOST = dataclasses.replace(LABELS, gpu=1, bind="0.0.0.0", port=30001, restart="unless-stopped")


def listed(**changed: Any) -> dict[str, Any]:
    entry = {
        "Id": ID, "Names": ["/ddtree-gpu1"], "State": "running", "Labels": ON_HOST.to_mapping(),
        "Ports": [
            {"IP": "127.0.0.1", "PrivatePort": 30001, "PublicPort": 30001, "Type": "tcp"},
            {"PrivatePort": 9000, "Type": "tcp"},
        ],
    }  # fmt: skip
    return {**entry, **changed}


def state(**changed: Any) -> dict[str, Any]:
    usual = {
        "Status": "running", "Running": True, "Restarting": False, "OOMKilled": False,
        "ExitCode": 0, "Error": "", "StartedAt": "2026-11-29T17:30:58.01156814Z",
        "FinishedAt": "0001-01-01T00:00:00Z",
    }  # fmt: skip
    return {**usual, **changed}


def inspected(name: str = "/ddtree-gpu1", policy: str = "unless-stopped", **changed: Any) -> Any:
    return {
        "Id": ID, "Name": name, "State": state(**changed),
        "Config": {"Labels": ON_HOST.to_mapping(), "Cmd": ["python3"], "Env": ["A=1=2", "B="]},
        "HostConfig": {"RestartPolicy": {"Name": policy}},
    }  # fmt: skip


def test_a_container_of_ours_is_known_by_labels_and_name() -> None:
    found = own(listed())
    assert found is not None
    assert (found.identity, found.role, found.running) == (ID, "current", True)
    assert found.labels == ON_HOST


@pytest.mark.parametrize(
    "changed",
    [
        {"Labels": {}},
        {"Labels": None},
        {"Labels": {"dev.ddtree.patch_set": "b8", "dev.ddtree.engine": "sglang 0.5.17"}},
        {"Labels": {**ON_HOST.to_mapping(), "dev.ddtree.gpu": "one"}},
        {"Names": ["/my-own-copy"]},
        {"Names": ["/ddtree-gpu2"]},
    ],
    ids=["no labels", "null", "those of our image alone", "damaged", "renamed", "of another GPU"],
)
def test_every_other_container_is_somebody_elses(changed: dict[str, Any]) -> None:
    assert own(listed(**changed)) is None


def test_a_kept_one_says_so_by_its_name() -> None:
    found = own(listed(Names=[f"/{kept_name(1, ID)}"], State="exited"))
    assert found is not None
    assert (found.role, found.running) == ("kept", False)


def test_a_neighbour_has_a_name_and_the_ports_that_it_publishes() -> None:
    found = neighbour(listed(Names=["/web/link", "/training"], Labels={}))
    assert (found.name, found.ports) == ("training", {30001: "127.0.0.1"})


def read(found: Any) -> Any:
    return instance(found, HOST)


def test_times_are_those_of_the_host() -> None:
    assert read(inspected()).started_at == pytest.approx(1795973458.0116, abs=0.001)


def test_an_instance_says_where_it_is_and_how_it_is_reached() -> None:
    found = read(inspected())
    assert (found.state, found.identity) == ("running", "container 3f2a9c1b7d5e")
    assert found.url == "http://127.0.0.1:30001"
    assert found.tunnel == "ssh -N -L 30001:127.0.0.1:30001 -p 2222 ops@gpu.example.com"
    assert found.environment == {"A": "1=2", "B": ""}
    assert found.stopped_at is None


def test_a_deploy_that_was_cut_off_left_no_restart_policy() -> None:
    assert read(inspected()).proven
    assert not read(inspected(policy="no")).proven


def test_a_kept_instance_was_stopped_at_some_time() -> None:
    stopped = inspected(
        f"/{kept_name(1, ID)}", Running=False, Status="exited",
        FinishedAt="2026-11-29T17:31:58Z",
    )  # fmt: skip
    found = read(stopped)
    assert found.state == "kept"
    assert found.stopped_at - found.started_at == pytest.approx(59.988, abs=0.001)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, None),
        ({"Running": False, "Status": "exited", "ExitCode": 1}, "it ended with exit code 1"),
        (
            {"Running": False, "Status": "exited", "ExitCode": 139},
            "it ended with exit code 139, signal 11",
        ),
        (
            {"Running": False, "Status": "exited", "ExitCode": 137, "OOMKilled": True},
            "it was killed, for it took more memory than it may have (exit code 137)",
        ),
        (
            {"Running": True, "Restarting": True, "Status": "restarting", "ExitCode": 3},
            "it ends again and again, the last time with exit code 3",
        ),
        ({"Running": False, "Status": "created"}, "its container was never started"),
        (
            {"Running": False, "Status": "exited", "ExitCode": 127, "Error": "exec: not found"},
            "it ended with exit code 127: exec: not found",
        ),
    ],
)
def test_how_a_container_ended(changed: dict[str, Any], says: str | None) -> None:
    assert how_it_ended(inspected(**changed)) == says
    assert read(inspected(**changed)).state == ("running" if says is None else "dead")
