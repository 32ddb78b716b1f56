"""`deploy`, `status`, `logs`, `stop` on real lab engines."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.commands.conftest import write
from tests.conftest import Ddtree, living


def services(ddtree: Ddtree) -> list[dict[str, Any]]:
    document = json.loads(ddtree("status", "tiny", "--json").stdout)
    found: list[dict[str, Any]] = document["tiny"]["services"]
    return found


def recorded_pid(home: Path) -> int | None:
    """The pid in the record of the only service; None between a stop and a start."""
    try:
        [record] = home.rglob("hosts/tiny/*/service.json")
        pid: int = json.loads(record.read_text())["pid"]
    except (ValueError, FileNotFoundError):
        return None
    return pid


def pid_of(service: dict[str, Any]) -> int:
    return int(service["identity"].removeprefix("pid "))


def test_a_deployed_tree_generates_and_a_stop_leaves_nothing(tiny: Ddtree, base_port: int) -> None:
    done = tiny("deploy", "tiny", "--budget", "8")
    assert done.returncode == 0, done.stderr
    [service] = services(tiny)
    assert (service["health"], service["budget"], service["gpu"]) == ("healthy", 8, 0)
    assert service["port"] == base_port
    url = f"http://127.0.0.1:{base_port}"
    info = httpx.get(f"{url}/server_info").json()
    assert info["speculative_ddtree_budget"] == 8

    assert tiny("stop", "tiny").returncode == 0
    assert services(tiny) == []
    assert living(pid_of(service)) == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


def test_a_dry_run_shows_the_plan_checks_and_changes_nothing(tiny: Ddtree, base_port: int) -> None:
    done = tiny("deploy", "tiny", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)["tiny"]
    assert [step["operation"] for step in plan["steps"]] == [
        "check-engine",
        "check-port",
        "start-service",
        "wait-ready",
        "verify-identity",
        "quick-smoke",
    ]
    assert "--speculative-ddtree-budget" in plan["argv"]
    assert "check that the engine can take tiny-pair" in done.stderr
    assert services(tiny) == []
    assert not list(tiny.home.rglob("service.json"))


def test_the_same_deploy_twice_leaves_the_service_alone(tiny: Ddtree) -> None:
    tiny("deploy", "tiny")
    [before] = services(tiny)
    again = tiny("deploy", "tiny")
    [after] = services(tiny)
    assert again.returncode == 0
    assert "nothing to change" in again.stderr
    assert after["identity"] == before["identity"]


def test_another_budget_replaces_the_service_in_place(tiny: Ddtree) -> None:
    tiny("deploy", "tiny", "--budget", "8")
    [before] = services(tiny)
    assert tiny("deploy", "tiny", "--budget", "12").returncode == 0
    [after] = services(tiny)
    assert (after["budget"], after["port"]) == (12, before["port"])
    assert living(pid_of(before)) == []


def test_services_take_gpus_of_their_own_and_ambiguity_is_refused_with_the_list(
    tiny: Ddtree, base_port: int
) -> None:
    tiny("deploy", "tiny", "--gpu", "1")
    tiny("deploy", "tiny", "--service", "plain")
    found = {service["service"]: service for service in services(tiny)}
    assert (found["ddtree"]["gpu"], found["ddtree"]["port"]) == (1, base_port + 1)
    assert (found["plain"]["gpu"], found["plain"]["algorithm"]) == (0, "none")
    ambiguous = tiny("stop", "tiny")
    assert ambiguous.returncode == 2
    assert "several services fit: plain on GPU 0, ddtree on GPU 1" in ambiguous.stderr
    assert tiny("stop", "tiny", "--service", "plain").returncode == 0
    assert [service["service"] for service in services(tiny)] == ["ddtree"]


def test_allow_hybrid_unsafe_on_an_exact_engine_is_one_notice(tiny: Ddtree) -> None:
    done = tiny("deploy", "tiny", "--allow-hybrid-unsafe")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("has no effect") == 1
    [service] = services(tiny)
    info = httpx.get(f"{service['url']}/server_info").json()
    assert info["speculative_ddtree_state"] == "exact"


def test_a_taken_port_is_refused_before_anything_starts(tiny: Ddtree, base_port: int) -> None:
    with socket.create_server(("127.0.0.1", base_port)):
        done = tiny("deploy", "tiny")
    assert done.returncode == 1
    assert f"port {base_port} is taken: Address already in use; choose another" in done.stderr
    assert services(tiny) == []


def test_a_dead_service_is_reported_dead_and_a_deploy_brings_it_back(tiny: Ddtree) -> None:
    tiny("deploy", "tiny")
    [service] = services(tiny)
    os.killpg(pid_of(service), signal.SIGKILL)
    deadline = time.monotonic() + 10
    while (seen := services(tiny)[0])["health"] != "dead":
        assert time.monotonic() < deadline, seen
    assert tiny("deploy", "tiny").returncode == 0
    assert services(tiny)[0]["health"] == "healthy"


def test_a_stale_record_of_another_process_is_dead_and_that_process_is_left_alone(
    tiny: Ddtree,
) -> None:
    tiny("deploy", "tiny")
    [file] = tiny.home.rglob("service.json")
    record = json.loads(file.read_text())
    tiny("stop", "tiny")
    write(file, json.dumps({**record, "pid": os.getpid()}))
    assert services(tiny)[0]["health"] == "dead"
    assert tiny("stop", "tiny").returncode == 0
    assert services(tiny) == []


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda target: (target / "config.json").unlink(), "config.json: no such file"),
        (
            lambda target: (target / "model.safetensors").write_bytes(
                (target / "model.safetensors").read_bytes()[:-1000]
            ),
            "model.safetensors: truncated or damaged safetensors file",
        ),
        (
            lambda target: write(target / "config.json", '{"architectures": ["Llama"]}'),
            'config.json: architecture is ["Llama"], expected Qwen3_5ForCausalLM',
        ),
    ],
    ids=["missing", "truncated", "foreign"],
)
def test_a_bad_checkpoint_is_refused_before_anything_starts(
    tiny: Ddtree, random_pair: tuple[Path, Path], spoil: Any, says: str
) -> None:
    import shutil

    broken = tiny.home / "broken"
    shutil.copytree(random_pair[0], broken)
    spoil(broken)
    write(
        tiny.home / ".config/ddtree/profiles/models/broken.yaml",
        f"description: broken\nextends: tiny-pair\ntarget: {broken}\nserved_name: broken\n",
    )
    done = tiny("deploy", "tiny", "--model", "broken")
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert services(tiny) == []


def test_a_budget_above_the_engines_limit_is_refused(tiny: Ddtree) -> None:
    done = tiny("deploy", "tiny", "--budget", "257")
    assert done.returncode == 2
    assert "budget must be 1 to 256, got 257" in done.stderr


def test_a_profile_with_a_typo_is_named_with_line_and_column(tiny: Ddtree) -> None:
    write(
        tiny.home / ".config/ddtree/profiles/services/mine.yaml",
        "description: mine\nextends: ddtree\nspeculative:\n  budgte: 8\n",
    )
    done = tiny("deploy", "tiny", "--service", "mine")
    assert done.returncode == 3
    assert "services/mine.yaml:4:3:" in done.stderr
    assert "did you mean budget" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_deploy_leaves_nothing_behind(tiny: Ddtree, number: signal.Signals) -> None:
    # The new service takes a while to load: the interrupt comes between start and ready.
    process = tiny.start("deploy", "tiny")
    deadline = time.monotonic() + 60
    while (pid := recorded_pid(tiny.home)) is None:
        assert time.monotonic() < deadline
        assert process.poll() is None
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted; nothing runs now" in err
    assert services(tiny) == []
    assert living(pid) == []


def test_a_second_ctrl_c_does_not_break_the_undo_off(tiny: Ddtree) -> None:
    tiny("deploy", "tiny", "--budget", "8")
    old = recorded_pid(tiny.home)
    process = tiny.start("deploy", "tiny", "--budget", "9")
    deadline = time.monotonic() + 60
    while recorded_pid(tiny.home) in (None, old):
        assert time.monotonic() < deadline
        assert process.poll() is None
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "running now: ddtree on GPU 0" in err
    [service] = services(tiny)
    assert (service["budget"], service["state"]) == (8, "running")


def test_a_replacement_that_fails_brings_the_old_service_back(tiny: Ddtree) -> None:
    tiny("deploy", "tiny", "--budget", "8")
    profile = tiny.home / ".config/ddtree/profiles/hosts/tiny.yaml"
    write(profile, profile.read_text().replace("ready_timeout_s: 60", "ready_timeout_s: 0.01"))
    done = tiny("deploy", "tiny", "--budget", "9")
    assert done.returncode == 6
    assert "not ready after" in done.stderr
    deadline = time.monotonic() + 60
    while (seen := services(tiny)[0])["health"] != "healthy":
        assert time.monotonic() < deadline, seen
    assert seen["budget"] == 8


def test_logs_outlive_the_service_and_name_where_it_listened(tiny: Ddtree, base_port: int) -> None:
    tiny("deploy", "tiny")
    assert f"127.0.0.1:{base_port}" in tiny("logs", "tiny").stdout
    tiny("stop", "tiny")
    assert tiny("logs", "tiny").returncode == 2
    kept = tiny("logs", "tiny", "--gpu", "0", "--lines", "1")
    assert (kept.returncode, len(kept.stdout.splitlines())) == (0, 1)


def test_status_sweeps_own_hosts_and_the_lab_but_no_template(tiny: Ddtree) -> None:
    document = json.loads(tiny("status", "--json").stdout)
    assert set(document) == {"lab", "tiny"}


def test_a_host_that_cannot_be_surveyed_is_shown_and_the_others_still_are(tiny: Ddtree) -> None:
    write(
        tiny.home / ".config/ddtree/profiles/hosts/wrong.yaml",
        "description: wrong\nruntime: proces\nmodel: lab-pair\n",
    )
    done = tiny("status", "--json")
    assert done.returncode == 7
    document = json.loads(done.stdout)
    assert "did you mean process" in document["wrong"]["error"]
    assert document["tiny"] == {"services": [], "unfinished": [], "clock_offset_s": 0}
