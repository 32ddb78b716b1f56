"""The command line as a whole: help, exit codes, and what it does not load."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from importlib.metadata import distributions

import pytest

from ddtree_ops_cli import errors
from ddtree_ops_cli.patchset.manifest import PatchSet
from tests.conftest import Ddtree

EXIT_CODES = {
    "DdtreeError": 1,
    "UsageError": 2,
    "ProfileError": 3,
    "HostUnreachable": 4,
    "LockHeld": 5,
    "Unhealthy": 6,
    "SomeHostsFailed": 7,
    "PatchMismatch": 8,
    "Interrupted": 130,
}
COMMANDS = [
    *("deploy", "plan", "status", "smoke", "bench", "logs", "stop", "doctor", "version"),
    *("build", "image list", "image copy", "image prune", "image lock", "image diff"),
    *("rollback", "history", "prune", "lock show", "lock break"),
    *("playbook list", "playbook show", "playbook plan"),
    *("hosts list", "hosts add", "hosts facts", "hosts trust"),
    *("profile list", "profile show", "profile check"),
]
HEAVY = ["numpy", "pydantic", "yaml", "httpx", "starlette", "fabric", "paramiko", "docker"]


def test_every_error_is_exported_and_has_its_documented_exit_code() -> None:
    found = {
        name: member.exit_code
        for name, member in inspect.getmembers(errors, inspect.isclass)
        if issubclass(member, errors.DdtreeError)
    }
    assert found == EXIT_CODES
    assert set(errors.__all__) == set(EXIT_CODES)


def test_an_error_is_one_line_with_place_and_mend() -> None:
    assert str(errors.UsageError("no GPU 9")) == "no GPU 9"
    whole = errors.UsageError("no GPU 9", where="host lab", mend="it has 0 to 3")
    assert str(whole) == "host lab: no GPU 9; it has 0 to 3"


def test_the_command_line_is_read_without_loading_what_only_commands_need() -> None:
    code = f"import sys, ddtree_ops_cli.cli; print([m for m in {HEAVY} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "[]"


@pytest.mark.parametrize("group", ["", "hosts", "image", "profile", "patch", "playbook", "lock"])
def test_help_lists_every_command_with_a_whole_sentence(ddtree: Ddtree, group: str) -> None:
    done = ddtree(*group.split(), "--help")
    assert done.returncode == 0
    listed = done.stdout.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    within = f"{group} " if group else ""
    here = {c.removeprefix(within).split()[0] for c in COMMANDS if c.startswith(within)}
    assert {line.split()[0] for line in listed} >= here
    for line in listed:
        command, *sentence = line.split()
        assert len(sentence) >= 2, f"{command} has no help"
        assert re.search(r"[^.]\.$", line), f"the help of {command} is cut off"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_each_of_its_options(ddtree: Ddtree, command: str) -> None:
    done = ddtree(*command.split(), "--help")
    assert done.returncode == 0
    options = re.split(r"\n  (?=-)", done.stdout.split("Options:")[1])
    assert len(options) >= 2
    for option in options[1:]:
        names, _, text = option.partition("  ")
        assert len(text.split()) > 1, f"{names} has no help"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["deploy", "ct20"], 2, "no host 'ct20'; did you mean ct200"),
        (["deploy", "ct200"], 2, "host 'ct200' is a template without an address; write"),
        (["deploy", "lab", "--service", "dtree"], 2, "no service 'dtree'; did you mean ddtree"),
        (["deploy", "lab", "--model", "lab-par"], 2, "no model 'lab-par'; did you mean lab-pair"),
        (["deploy", "lab", "--gpu", "9"], 2, "host lab: no GPU 9; it has 0 to 3"),
        (
            ["deploy", "lab", "--budget", "0"],
            2,
            "Invalid value for '--budget': Input should be greater than or equal to 1",
        ),
        (["deploy", "lab", "--budget", "-4"], 2, "Input should be greater than or equal to 1"),
        (["deploy", "lab", "--budgte", "4"], 2, "No such option: --budgte"),
        (["deploy"], 2, "Missing argument"),
        (["stop", "lab"], 2, "host lab: no service is deployed; `ddtree deploy lab` starts one"),
        (["smoke", "lab"], 2, "host lab: no service is deployed; `ddtree deploy lab` starts one"),
        (["logs", "lab"], 2, "host lab: no service is deployed; `ddtree deploy lab` starts one"),
        (["logs", "lab", "--gpu", "2"], 1, "GPU 2: no log: nothing was started here"),
        (["--profiles", "nowhere", "status"], 2, "nowhere: no such place"),
    ],
)
def test_a_mistake_gets_one_line_its_exit_code_and_no_traceback(
    ddtree: Ddtree, words: list[str], code: int, says: str
) -> None:
    done = ddtree(*words)
    assert says in " ".join(done.stderr.split())
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_closed_output_is_not_written_to(ddtree: Ddtree) -> None:
    words = f"{sys.executable} -m ddtree_ops_cli profile list >&-"
    environment = {**os.environ, **ddtree.environment}
    done = subprocess.run(["sh", "-c", words], stderr=subprocess.PIPE, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_version_tells_the_patch_set_apart_from_the_sglang_that_is_installed(
    ddtree: Ddtree,
) -> None:
    found = json.loads(ddtree("version", "--json").stdout)
    assert set(found) == {"ddtree", "python", "patch_sets", "sglang"}
    assert found["patch_sets"] == {"0.5.17": PatchSet.load("0.5.17").set_hash}
    here = {found.name: found.version for found in distributions(name="sglang")}
    assert found["sglang"] == here.get("sglang")
    assert f"patch set {found['patch_sets']['0.5.17'][:12]} for sglang 0.5.17" in (
        ddtree("version").stdout
    )
