"""`rollback`, `history`, `prune`, `lock`, `playbook`, and many hosts, on real lab engines."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

from ddtree_ops_cli.rollout.playbook import load
from tests.commands.conftest import GPUS, write
from tests.conftest import Ddtree, free_ports


def budget(ddtree: Ddtree, host: str = "tiny") -> int | None:
    """Of the healthy service on a host; None if there is none."""
    found = json.loads(ddtree("status", host, "--json").stdout)[host]["services"]
    return next((s["budget"] for s in found if s["health"] == "healthy"), None)


def runs(ddtree: Ddtree) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ddtree("history", "tiny", "--json").stdout)
    return found


def test_a_rollback_brings_back_what_ran_before_and_a_second_one_undoes_it(tiny: Ddtree) -> None:
    tiny("deploy", "tiny", "--budget", "8")
    tiny("deploy", "tiny", "--budget", "12", "--why", 'it\'s "better" $(x)')
    planned = json.loads(tiny("rollback", "tiny", "--dry-run", "--json").stdout)["tiny"]
    assert [step["operation"] for step in planned["steps"]] == [
        "check-port",
        "stop-previous",
        "start-kept",
        "wait-ready",
        "verify-identity",
        "quick-smoke",
    ]
    assert budget(tiny) == 12
    done = tiny("rollback", "tiny")
    assert done.returncode == 0, done.stderr
    assert budget(tiny) == 8
    assert tiny("rollback", "tiny").returncode == 0
    assert budget(tiny) == 12

    told = runs(tiny)
    assert [(run["command"], run["result"]) for run in told] == [
        ("deploy tiny", "done"),
        ('deploy tiny (it\'s "better" $(x))', "done"),
        ("rollback tiny", "done"),
        ("rollback tiny", "done"),
    ]
    done_steps = [e["step"] for e in told[1]["events"] if e.get("event") == "done"]
    # A process of this machine has no GPU and no policy of restarts.
    not_here = {"check-gpu", "settle"}
    assert done_steps == [s.operation for s in load("replace").steps if s.operation not in not_here]


def test_a_stopped_service_can_be_rolled_back_until_it_is_pruned(tiny: Ddtree) -> None:
    tiny("deploy", "tiny", "--budget", "8")
    tiny("stop", "tiny")
    assert tiny("rollback", "tiny").returncode == 0
    assert budget(tiny) == 8
    tiny("stop", "tiny")
    [kept] = json.loads(tiny("prune", "tiny", "-n", "--json").stdout)["spared"]
    for named in (kept["identity"], kept["identity"].removeprefix("pid ")):
        assert tiny("rollback", "tiny", "-n", "--to", named).returncode == 0
    another = tiny("rollback", "tiny", "--to", "pid 1x")
    assert (another.returncode, kept["identity"] in another.stderr) == (2, True)
    spared = json.loads(tiny("prune", "tiny", "--older-than", "0", "--json").stdout)
    assert (spared["forgotten"], len(spared["spared"])) == ([], 1)
    words = ("prune", "tiny", "--older-than", "0", "--latest-too", "--json")
    assert len(json.loads(tiny(*words, "--dry-run").stdout)["forgotten"]) == 1
    assert len(json.loads(tiny(*words).stdout)["forgotten"]) == 1
    refused = tiny("rollback", "tiny", "--gpu", "0")
    assert refused.returncode == 2
    assert "nothing was kept to go back to" in refused.stderr


def test_a_killed_deploy_is_named_by_the_next_command_which_mends_it(tiny: Ddtree) -> None:
    tiny("deploy", "tiny", "--budget", "8")
    process = tiny.start("deploy", "tiny", "--budget", "12")
    deadline = time.monotonic() + 60
    log = next(tiny.home.rglob("audit.jsonl"))
    while '"step": "stop-previous", "event": "done"' not in log.read_text():
        assert time.monotonic() < deadline
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert "cut off" in tiny("history", "tiny").stdout
    done = tiny("rollback", "tiny")
    assert done.returncode == 0, done.stderr
    assert budget(tiny) == 8
    again = tiny("deploy", "tiny", "--budget", "12")
    assert again.returncode == 0
    assert "cut off" not in again.stderr


def test_a_lock_that_is_held_refuses_a_deploy_with_its_holder(tiny: Ddtree) -> None:
    from ddtree_ops_cli.hosts.shell import ThisMachine
    from ddtree_ops_cli.hosts.state import HostState
    from ddtree_ops_cli.rollout.lock import hold

    state = HostState(ThisMachine("tiny"), str(tiny.home / ".local/state/ddtree/hosts/tiny"))
    with hold(state, "gpu-0", purpose="a long deploy"):
        refused = tiny("deploy", "tiny", "--gpu", "0")
        assert refused.returncode == 5
        assert "a long deploy, since" in refused.stderr
        [shown] = json.loads(tiny("lock", "show", "tiny", "--json").stdout)
        assert (shown["name"], shown["held"], shown["purpose"]) == ("gpu-0", True, "a long deploy")
        assert tiny("deploy", "tiny", "--gpu", "1").returncode == 0
        assert tiny("lock", "break", "tiny", "gpu-7").returncode == 2
        assert tiny("lock", "break", "tiny", "gpu-0").returncode == 0
        assert tiny("deploy", "tiny", "--gpu", "0", "--service", "plain").returncode == 0


def test_drift_between_profile_and_service_is_shown_key_by_key(tiny: Ddtree) -> None:
    tiny("deploy", "tiny", "--budget", "8")
    plan = json.loads(tiny("deploy", "tiny", "--budget", "12", "--dry-run", "--json").stdout)
    assert plan["tiny"]["drift"] == [{"key": "tree.budget", "runs": 8, "declared": 12}]


@pytest.fixture
def group(tiny: Ddtree) -> list[str]:
    profiles = tiny.home / ".config/ddtree/profiles/hosts"
    text = (profiles / "tiny.yaml").read_text()
    names = ["tiny", "tiny2", "tiny3"]
    for name in names:
        port = free_ports(GPUS)[0]
        own = text.replace(
            next(line for line in text.splitlines() if line.startswith("base_port")),
            f"base_port: {port + 10 * names.index(name)}",
        )
        write(profiles / f"{name}.yaml", f"{own}groups: [small]\n")
    return names


def test_one_failing_host_of_a_group_is_exit_7_and_a_rerun_touches_only_it(
    tiny: Ddtree, group: list[str]
) -> None:
    profile = tiny.home / ".config/ddtree/profiles/hosts/tiny2.yaml"
    right = profile.read_text()
    write(profile, right.replace("ready_timeout_s: 60", "ready_timeout_s: 0.01"))
    try:
        done = tiny("deploy", "@small", "--json")
        assert done.returncode == 7, done.stderr
        results = json.loads(done.stdout)
        assert list(results) == group
        assert "not ready" in results["tiny2"]["error"]
        before = {name: results[name]["now"]["identity"] for name in ("tiny", "tiny3")}
        assert "tiny3: start ddtree on GPU 0" in done.stderr
        write(profile, right)
        again = tiny("deploy", "@small", "--json")
        assert again.returncode == 0, again.stderr
        results = json.loads(again.stdout)
        assert {name: results[name]["now"]["identity"] for name in before} == before
        assert results["tiny2"]["playbook"] == "deploy"
    finally:
        tiny("stop", *group)


def test_no_further_host_is_begun_after_the_allowed_failures(
    tiny: Ddtree, group: list[str]
) -> None:
    profile = tiny.home / ".config/ddtree/profiles/hosts/tiny.yaml"
    write(profile, profile.read_text().replace("ready_timeout_s: 60", "ready_timeout_s: 0.01"))
    words = ("--max-parallel", "1", "--max-failures", "1", "--json")
    done = tiny("deploy", *group, *words)
    assert done.returncode == 7
    results = json.loads(done.stdout)
    assert [results[name]["error"].endswith("not begun") for name in group] == [False, True, True]


def test_ctrl_c_on_many_hosts_undoes_each(tiny: Ddtree, group: list[str]) -> None:
    process = tiny.start("deploy", *group)
    deadline = time.monotonic() + 90
    while len(list(tiny.home.rglob("hosts/*/0/service.json"))) < len(group):
        assert time.monotonic() < deadline
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    for name in group:
        assert json.loads(tiny("status", name, "--json").stdout)[name]["services"] == []


def test_playbooks_are_listed_shown_and_planned(tiny: Ddtree) -> None:
    names = [p["name"] for p in json.loads(tiny("playbook", "list", "--json").stdout)]
    assert names == ["deploy", "forget", "replace", "rollback", "stop"]
    shown = tiny("playbook", "show", "replace").stdout
    assert "two engines do not fit into the memory of one GPU" in shown
    planned = json.loads(tiny("playbook", "plan", "deploy", "tiny", "--json").stdout)
    assert planned["tiny"]["playbook"] == "deploy"
    assert tiny("playbook", "plan", "replace", "tiny").returncode == 2
    part = tiny("playbook", "plan", "forget", "tiny")
    assert part.returncode == 2
    assert "forget has no command of its own" in part.stderr
    unknown = tiny("playbook", "show", "reboot")
    assert unknown.returncode == 2
    assert "there is: deploy, forget, replace, rollback, stop" in unknown.stderr
