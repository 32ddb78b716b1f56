"""`bench` on real lab engines: what it says, what it keeps, and what it leaves running."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.commands.conftest import write
from tests.conftest import COMMAND_TIMEOUT_S, Ddtree

SHORT = ("--max-tokens", "16")


@pytest.fixture
def deployed(tiny: Ddtree) -> Ddtree:
    """A tree service on GPU 0 of a host that lets temporary services run."""
    hosts = tiny.home / ".config/ddtree/profiles/hosts/tiny.yaml"
    hosts.write_text(hosts.read_text() + "temporary_services: true\n")
    done = tiny("deploy", "tiny", "--service", "ddtree")
    assert done.returncode == 0, done.stderr
    write(tiny.home / "mine.jsonl", '{"prompt": "Count.", "id": "count"}\n{"prompt": "Hello."}\n')
    return tiny


def status(ddtree: Ddtree) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ddtree("status", "tiny", "--json").stdout)["tiny"][
        "services"
    ]
    return found


def services(ddtree: Ddtree) -> dict[str, int]:
    found = status(ddtree)
    return {one["service"]: int(one["identity"].removeprefix("pid ")) for one in found}


def read(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def wait_for(said: str, process: subprocess.Popen[str]) -> None:
    """Until a line of the progress begins so."""
    assert process.stderr is not None
    for line in process.stderr:
        if said in line:
            return
    raise AssertionError(f"it ended before it said {said!r}")


def finished_rounds(file: Path, rounds: int) -> None:
    """Until the record holds that many rounds: it is written after the line of the progress."""
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    while not file.exists() or len(read(file)["rounds"]) < rounds:
        assert time.monotonic() < deadline, "the round was not recorded"
        time.sleep(0.02)


def test_a_temporary_arm_is_measured_beside_the_tree_and_stopped_after(deployed: Ddtree) -> None:
    out = deployed.home / "deep/out.json"
    done = deployed(
        "bench", "tiny", "--compare", "linear", "--suite", "mine.jsonl", "--rounds", "2", *SHORT,
        "--json", str(out),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list(services(deployed)) == ["ddtree"]
    lines = done.stdout.splitlines()
    assert "tree tok/s" in lines[0]
    assert "linear tok/s" in lines[0]
    assert [line.split()[0] for line in lines[1:4]] == ["count", "2", "overall"]
    assert all("identical" in line for line in lines[1:3])
    assert any(line.startswith("no verdict: 2 rounds count") for line in lines)
    assert "round 2 of 2: tree " in done.stderr
    assert str(out) in done.stderr

    document = read(out)
    assert document["complete"] is True
    assert len(document["rounds"]) >= 2
    assert document["arms"]["tree"]["labels"]["budget"] == 16
    assert document["arms"]["tree"]["temporary"] is False
    assert document["arms"]["linear"]["temporary"] is True
    assert document["arms"]["linear"]["server_info"]["speculative_algorithm"] == "DFLASH"
    for one in document["rounds"][0]["measurements"]:
        assert one["tokens"] == 16
        assert one["decode_tok_s"] > 0
        assert one["verify_steps"] >= 1
        order = {pair["prompt"]: pair["order"] for pair in document["schedule"][0]}
        assert order[one["prompt"]][one["position"]] == one["arm"]
    assert document["comparison"]["repeats"] == 1


def test_a_dry_run_shows_the_schedule_and_starts_nothing(deployed: Ddtree) -> None:
    done = deployed("bench", "tiny", "-n", "--suite", "mine.jsonl", "--rounds", "2")
    assert done.returncode == 0, done.stderr
    assert "count (tree, linear)" in done.stdout
    assert "count (linear, tree)" in done.stdout
    assert "dflash-linear, to be started on GPU 1 and stopped after" in done.stdout
    assert list(services(deployed)) == ["ddtree"]
    as_json = deployed("bench", "tiny", "-n", "--json", "-")
    assert len(json.loads(as_json.stdout)["schedule"]) == 10


def test_ctrl_c_keeps_what_is_finished_and_stops_the_temporary_arm(deployed: Ddtree) -> None:
    out = deployed.home / "out.json"
    process = deployed.start("bench", "tiny", "--rounds", "500", *SHORT, "--json", str(out))
    wait_for("round 1 of 500", process)
    finished_rounds(out, 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
    assert process.returncode == 130, err
    assert f"rounds are in {out}, marked as partial" in err
    assert "Traceback" not in err
    assert list(services(deployed)) == ["ddtree"]
    document = read(out)
    assert (document["status"], document["complete"]) == ("interrupted", False)
    assert 1 <= len(document["rounds"]) < 500
    assert document["comparison"]["verdict"] in ("too few rounds", "faster", "slower",
                                                 "no difference")  # fmt: skip


def test_an_engine_that_dies_leaves_an_invalid_run_with_its_finished_rounds(
    deployed: Ddtree,
) -> None:
    out = deployed.home / "out.json"
    process = deployed.start("bench", "tiny", "--rounds", "500", *SHORT, "--json", str(out))
    wait_for("round 1 of 500", process)
    finished_rounds(out, 1)
    os.kill(services(deployed)["ddtree"], signal.SIGKILL)
    _, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
    assert process.returncode == 6, err
    assert "the run is invalid after" in err
    assert f"its finished rounds are in {out}" in err
    document = read(out)
    assert (document["status"], document["complete"]) == ("invalid", False)
    assert len(document["rounds"]) >= 1
    assert "dflash-linear" not in services(deployed)


def test_an_arm_that_serves_another_target_is_refused(
    deployed: Ddtree, random_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    target, _ = random_pair
    shutil.copytree(target, tmp_path / "older")
    models = deployed.home / ".config/ddtree/profiles/models/tiny-pair.yaml"
    models.write_text(models.read_text().replace(str(target), str(tmp_path / "older")))
    assert deployed("deploy", "tiny", "--service", "dflash-linear").returncode == 0
    done = deployed("bench", "tiny", "--rounds", "1", *SHORT)
    assert done.returncode == 6
    assert f"dflash-linear on GPU 1: its target is {tmp_path / 'older'}, and that of" in done.stderr


def test_a_busy_service_is_refused_and_names_the_word_that_measures_all_the_same(
    deployed: Ddtree,
) -> None:
    [port] = [one["port"] for one in status(deployed)]
    body = {"text": "Count.", "sampling_params": {"max_new_tokens": 480, "ignore_eos": True}}
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(deployed, "bench", "tiny", "--rounds", "1", *SHORT)
        while not done.done():
            httpx.post(f"http://127.0.0.1:{port}/generate", json=body, trust_env=False, timeout=60)
    refused = done.result()
    assert refused.returncode == 1, refused.stderr
    assert "ddtree on GPU 0: it is serving other requests" in refused.stderr
    assert "--busy-ok" in refused.stderr
    assert list(services(deployed)) == ["ddtree"]


def test_json_on_stdout_is_the_whole_document_and_nothing_else(deployed: Ddtree) -> None:
    done = deployed(
        "bench", "tiny", "--compare", "plain", "--suite", "mine.jsonl", "--rounds", "1", *SHORT,
        "--json", "-",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["complete"] is True
    assert document["comparison"]["overall"]["arms"]["plain"]["accept_length"] is None
    [kept] = (deployed.home / ".local/state/ddtree/bench").glob("tiny-*.json")
    assert read(kept) == document


def test_without_an_arm_to_compare_with_it_says_how_to_start_one(tiny: Ddtree) -> None:
    assert tiny("deploy", "tiny", "--service", "ddtree").returncode == 0
    for words in (["-n"], []):
        done = tiny("bench", "tiny", *words)
        assert done.returncode == 2
        assert "no dflash-linear of model tiny-pair runs here" in done.stderr
        assert "`ddtree deploy tiny --service dflash-linear --model tiny-pair`" in done.stderr


def test_nothing_to_measure_and_the_same_against_itself_are_refused(tiny: Ddtree) -> None:
    none = tiny("bench", "tiny")
    assert (none.returncode, "no service is deployed" in none.stderr) == (2, True)
    assert tiny("deploy", "tiny", "--service", "dflash-linear").returncode == 0
    same = tiny("bench", "tiny", "--service", "dflash-linear")
    assert same.returncode == 2
    assert "dflash-linear on GPU 0 is linear itself" in same.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--rounds", "0"], 2, "Invalid value for '--rounds'"),
        (["--compare", "chain"], 2, "Invalid value for '--compare'"),
        (["--temperature", "nan"], 2, "--temperature is no number from 0 to 2"),
        (["--suite", "nowhere.jsonl"], 2, "no suite 'nowhere.jsonl'"),
        (["--suite", "broken.jsonl"], 3, "broken.jsonl:2:"),
        (["--suite", "empty.jsonl"], 3, "empty.jsonl: no prompt in this suite"),
    ],
)
def test_bad_input_is_one_clear_line(
    ddtree: Ddtree, words: list[str], code: int, says: str
) -> None:
    write(ddtree.home / "broken.jsonl", '{"prompt": "Hello."}\n{"prompt": \n')
    write(ddtree.home / "empty.jsonl", "")
    done = ddtree("bench", "lab", *words)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
