"""The file of a run: whole or not at all, and without secrets."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from ddtree_ops_cli.bench.answer import Shape
from ddtree_ops_cli.bench.prompts import load_suite
from ddtree_ops_cli.bench.record import Record, Side, write_whole
from ddtree_ops_cli.bench.run import Run, Settings
from ddtree_ops_cli.engine_api.answers import ServerInfo
from ddtree_ops_cli.errors import UsageError
from ddtree_ops_cli.services.runtimes import Instance
from tests.services.test_labels import LABELS


def record(file: Path, **arguments: object) -> Record:
    suite = load_suite("story")
    info = ServerInfo(version="0.5.17", arguments=arguments, internal_states=())
    sides = [
        Side(
            name,
            Instance(
                dataclasses.replace(LABELS, gpu=gpu), "running", "pid 1", "http://x", 0.0, (), {}
            ),
            info,
            "this machine",
            temporary=False,
        )
        for gpu, name in enumerate(("tree", "linear"))
    ]
    run = Run(suite.prompts, Settings(10, 3, Shape(128, 0.0)), ("tree", "linear"))
    return Record(file, "lab", suite, run, sides)


def test_a_record_says_what_it_takes_to_repeat_the_run(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    record(file, tp_size=1).write()
    document = json.loads(file.read_text())
    assert (document["complete"], document["status"]) == (False, "running")
    assert document["suite"]["sha256"] == load_suite("story").sha256
    assert (document["seed"], document["request"]["temperature"]) == (3, 0.0)
    assert len(document["schedule"]) == 10
    assert document["machine"]["cpus"] == os.cpu_count()
    assert document["arms"]["tree"]["server_info"] == {"tp_size": 1}
    assert document["arms"]["linear"]["labels"]["spec_hash"] == LABELS.spec_hash


def test_a_record_holds_no_secret_of_the_server(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    record(file, api_key="hush", ssl_keyfile_password="hush", admin_api_key=None).write()
    assert "hush" not in file.read_text()
    info = json.loads(file.read_text())["arms"]["tree"]["server_info"]
    assert info["api_key"] == "(left out)"
    assert info["admin_api_key"] is None


def test_a_write_that_fails_half_way_leaves_the_last_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.json"
    write_whole(file, "first")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"run\.json: cannot be written: No space left"):
        write_whole(file, "second")
    assert file.read_text() == "first"
    assert list(tmp_path.iterdir()) == [file]


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match=r"cannot be written: .*; choose another --json"):
        record(blocked / "run.json").write()
    with pytest.raises(UsageError, match="cannot be written"):
        record(tmp_path).write()
