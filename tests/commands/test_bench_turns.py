"""`bench --alternate`: two real lab engines on the one place of a host, and what runs after."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import write
from tests.conftest import COMMAND_TIMEOUT_S, Ddtree

SHORT = ("--max-tokens", "16", "--suite", "mine.jsonl")


@dataclasses.dataclass(frozen=True)
class Service:
    name: str
    pid: int
    spec_hash: str
    port: int


@pytest.fixture
def lone(tiny: Ddtree) -> Ddtree:
    """A tree service, deployed with words of its own, on the only GPU of its host."""
    hosts = tiny.home / ".config/ddtree/profiles/hosts/tiny.yaml"
    text = hosts.read_text().replace("gpus: 3", "gpus: 1")
    hosts.write_text(text + "temporary_services: true\n")
    done = tiny("deploy", "tiny", "--service", "ddtree", "--budget", "12")
    assert done.returncode == 0, done.stderr
    write(tiny.home / "mine.jsonl", '{"prompt": "Count.", "id": "count"}\n{"prompt": "Hello."}\n')
    return tiny


def on_gpu(ddtree: Ddtree) -> list[Service]:
    found = json.loads(ddtree("status", "tiny", "--json").stdout)["tiny"]["services"]
    assert all(one["health"] == "healthy" for one in found)
    return [
        Service(
            one["service"], int(one["identity"].removeprefix("pid ")), one["spec_hash"], one["port"]
        )
        for one in found
    ]


def recorded_pid(ddtree: Ddtree) -> int:
    """Of what is on the GPU; faster than `status`."""
    record = ddtree.home / ".local/state/ddtree/hosts/tiny/0/service.json"
    return int(json.loads(record.read_text())["pid"])


def command_of(service: Service) -> list[str]:
    return Path(f"/proc/{service.pid}/cmdline").read_text().split("\0")


def assert_runs_again(ddtree: Ddtree, before: Service, command: list[str]) -> None:
    [after] = on_gpu(ddtree)
    assert after.pid != before.pid
    assert dataclasses.replace(after, pid=before.pid) == before
    assert command_of(after) == command
    # Of what was only there for the comparison nothing is left to go back to.
    assert "nothing was kept" in ddtree("rollback", "tiny", "--dry-run").stderr


def wait_for(said: str, process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if said in line:
            return
    raise AssertionError(f"it ended before it said {said!r}")


def read(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def test_the_two_take_turns_and_the_service_runs_again_as_it_was(lone: Ddtree) -> None:
    [before] = on_gpu(lone)
    command = command_of(before)
    out = lone.home / "out.json"
    done = lone("bench", "tiny", "--alternate", "--rounds", "3", *SHORT, "--json", str(out))
    assert done.returncode == 0, done.stderr
    assert_runs_again(lone, before, command)
    assert "the arms took turns on one GPU" in done.stdout
    assert all("identical" in line for line in done.stdout.splitlines()[1:3])
    assert done.stderr.count("start dflash-linear on GPU 0") == 3
    # Its first turn needs no start; the run of odd rounds ends with the other, so one more does.
    assert done.stderr.count("start ddtree on GPU 0 (pid ") == 3

    document = read(out)
    assert (document["complete"], document["way"]) == (True, "in turns on one GPU")
    assert [[block["arm"] for block in blocks] for blocks in document["schedule"]] == [
        ["tree", "linear"], ["linear", "tree"], ["tree", "linear"],
    ]  # fmt: skip
    assert len(document["warm_up"]["starts"]) == 6
    assert [document["arms"][arm]["temporary"] for arm in ("tree", "linear")] == [False, True]
    assert document["arms"]["tree"]["labels"]["budget"] == 12
    assert document["arms"]["linear"]["server_info"]["speculative_algorithm"] == "DFLASH"
    for done_round in document["rounds"]:
        assert [one["arm"] for one in done_round["measurements"]] in (
            ["tree"] * 2 + ["linear"] * 2, ["linear"] * 2 + ["tree"] * 2,
        )  # fmt: skip


def test_without_the_word_it_refuses_and_names_it(lone: Ddtree) -> None:
    [before] = on_gpu(lone)
    for words in (["-n"], []):
        done = lone("bench", "tiny", *words)
        assert done.returncode == 2
        assert (
            "no GPU of its kind is free; --alternate lets the two take turns on GPU 0"
            in done.stderr
        )
    assert on_gpu(lone) == [before]


def test_the_word_alone_is_not_enough_where_the_host_allows_no_temporary_service(
    lone: Ddtree,
) -> None:
    hosts = lone.home / ".config/ddtree/profiles/hosts/tiny.yaml"
    hosts.write_text(hosts.read_text().replace("temporary_services: true\n", ""))
    [before] = on_gpu(lone)
    done = lone("bench", "tiny", "--alternate")
    assert done.returncode == 2
    assert "temporary_services: false and no GPU of its kind is free" in done.stderr
    assert on_gpu(lone) == [before]


def test_a_dry_run_shows_the_blocks_and_what_takes_the_place_and_changes_nothing(
    lone: Ddtree,
) -> None:
    [before] = on_gpu(lone)
    done = lone("bench", "tiny", "--alternate", "-n", "--rounds", "2", *SHORT)
    assert done.returncode == 0, done.stderr
    assert "tree (2, count); linear (2, count)" in done.stdout.replace("count, 2", "2, count")
    assert "3 starts on GPU 0" in done.stdout
    assert f"stop ddtree on GPU 0 (pid {before.pid})" in done.stdout
    assert "start dflash-linear on GPU 0" in done.stdout
    as_json = json.loads(lone("bench", "tiny", "--alternate", "-n", "--json", "-").stdout)
    assert as_json["way"] == "in turns on one GPU"
    assert as_json["start"]["playbook"] == "replace"
    assert on_gpu(lone) == [before]


@pytest.mark.parametrize(
    "moment",
    ["start dflash-linear on GPU 0", "warm-up, linear", "start ddtree on GPU 0 (pid "],
    ids=["while the other starts", "while the other has its turn", "while it starts again"],
)
def test_ctrl_c_brings_the_service_back_as_it_was(lone: Ddtree, moment: str) -> None:
    [before] = on_gpu(lone)
    command = command_of(before)
    out = lone.home / "out.json"
    process = lone.start(
        "bench", "tiny", "--alternate", "--rounds", "500", *SHORT, "--json", str(out)
    )
    wait_for(moment, process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)  # the impatient second one
    _, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
    assert process.returncode == 130, err
    assert "marked as partial" in err
    assert "Traceback" not in err
    assert_runs_again(lone, before, command)
    assert (read(out)["status"], read(out)["complete"]) == ("interrupted", False)


def test_an_engine_that_dies_in_its_turn_leaves_the_rounds_and_the_service_as_it_was(
    lone: Ddtree,
) -> None:
    [before] = on_gpu(lone)
    command = command_of(before)
    out = lone.home / "out.json"
    process = lone.start("bench", "tiny", "--alternate", "--rounds", "500", "--json", str(out))
    wait_for("round 1 of 500, linear", process)
    wait_for("start ddtree on GPU 0 (pid ", process)
    wait_for("verify that it serves", process)
    os.kill(recorded_pid(lone), signal.SIGKILL)
    _, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
    assert process.returncode == 6, err
    assert "the run is invalid after 1 rounds" in err
    assert f"its finished rounds are in {out}" in err
    assert_runs_again(lone, before, command)
    document = read(out)
    assert (document["status"], len(document["rounds"])) == ("invalid", 1)


def test_after_a_kill_nine_a_rollback_brings_the_service_back(lone: Ddtree) -> None:
    [before] = on_gpu(lone)
    command = command_of(before)
    process = lone.start("bench", "tiny", "--alternate", "--rounds", "500", *SHORT)
    wait_for("warm-up, linear", process)
    process.kill()
    process.communicate(timeout=COMMAND_TIMEOUT_S)
    assert lone("rollback", "tiny", "--gpu", "0").returncode == 0
    [after] = on_gpu(lone)
    assert dataclasses.replace(after, pid=before.pid) == before
    assert command_of(after) == command


def test_a_second_service_that_cannot_start_is_refused_before_anything_stops(
    lone: Ddtree,
) -> None:
    models = lone.home / ".config/ddtree/profiles/models/tiny-pair.yaml"
    models.write_text(models.read_text().replace("drafter: ", "drafter: /nowhere"))
    [before] = on_gpu(lone)
    done = lone("bench", "tiny", "--alternate", "--rounds", "2", *SHORT)
    assert done.returncode == 1, done.stderr
    assert "/nowhere" in done.stderr
    assert on_gpu(lone) == [before]


def test_a_second_service_that_ends_in_its_start_brings_the_first_back(lone: Ddtree) -> None:
    [before] = on_gpu(lone)
    command = command_of(before)
    process = lone.start("bench", "tiny", "--alternate", "--rounds", "2", *SHORT)
    wait_for("start dflash-linear on GPU 0", process)
    os.kill(recorded_pid(lone), signal.SIGKILL)
    _, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
    assert process.returncode == 6, err
    assert "before it was ready" in err
    assert_runs_again(lone, before, command)
