"""`ddtree doctor` as its users meet it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddtree_ops_cli.doctor.portable.catalogue import CHECKS
from tests.conftest import Ddtree


def test_list_names_every_check_its_severity_and_what_it_prevents(ddtree: Ddtree) -> None:
    listed = json.loads(ddtree("doctor", "--list", "--json").stdout)
    assert [check["id"] for check in listed] == [check.id for check in CHECKS]
    assert {check["severity"] for check in listed} == {"blocking", "advisory"}
    table = ddtree("doctor", "--list").stdout
    assert all(check.id in table and check.reference in table for check in CHECKS)


def test_this_machine_is_judged_and_a_blocking_check_is_exit_code_8(ddtree: Ddtree) -> None:
    done = ddtree("doctor", "--json")
    document = json.loads(done.stdout)
    [place] = document["places"]
    assert place["place"] == "this machine"
    states = {finding["id"]: finding["state"] for finding in place["findings"]}
    assert set(states) == {check.id for check in CHECKS}
    assert done.returncode == (8 if document["blocked"] else 0)


def test_the_table_shows_what_failed_first_and_the_mends(ddtree: Ddtree, tmp_path: Path) -> None:
    fake = tmp_path / "bin/nvidia-smi"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    fake.chmod(0o755)
    ddtree.environment["PATH"] = f"{fake.parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    done = ddtree("doctor")
    assert done.returncode == 8
    first = done.stdout.splitlines()[1].split()
    assert first[:3] == ["failed", "blocking", "driver-answers"]
    assert "exit code 6" in done.stdout
    assert "driver-answers: Nothing can run on a GPU here." in done.stderr
    assert "not checked (PyTorch is not installed here): driver-cuda, " in done.stderr
    assert "not checked" not in done.stdout
    assert " failed (1 of them blocking), " in done.stderr.splitlines()[-1]


def test_an_exported_script_knows_what_the_service_needs(ddtree: Ddtree, tmp_path: Path) -> None:
    file = tmp_path / "doctor.py"
    done = ddtree("doctor", "--service", "ddtree", "--export", str(file))
    assert done.returncode == 0
    assert done.stdout.strip() == str(file)
    assert '"attention_backend": "triton"' in file.read_text()
    assert file.stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("doctor", "lab"), 2, "host lab: it runs the reference engine"),
        (("doctor", "ct200"), 2, "host 'ct200' is a template without an address"),
        (("doctor", "nowhere"), 2, "no host 'nowhere'"),
        (("doctor", "--image", "a:b"), 2, "--image is for a host"),
        (("doctor", "--service", "dtree"), 2, "no service 'dtree'; did you mean ddtree"),
        (("doctor", "--export", "/nowhere/doctor.py"), 1, "/nowhere/doctor.py: cannot be written"),
    ],
)
def test_a_mistake_is_one_line(
    ddtree: Ddtree, words: tuple[str, ...], code: int, says: str
) -> None:
    done = ddtree(*words)
    assert done.returncode == code
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
