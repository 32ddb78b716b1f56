"""Real processes, in a state directory of the test's own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ddtree_ops_cli.errors import DdtreeError
from ddtree_ops_cli.services.runtimes import Launch
from ddtree_ops_cli.services.runtimes.process import ProcessRuntime
from tests.conftest import free_ports, living
from tests.services.test_labels import LABELS

# Announces itself, has a child in its group, and ignores the polite signal if told to.
PROGRAM = """
import signal, subprocess, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("up", flush=True)
time.sleep(60)
"""
GRACE_S = 5.0
STARTED: list[int] = []


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessRuntime]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    STARTED.clear()
    yield ProcessRuntime("lab", gpus=4)
    for pid in STARTED:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def record_of(gpu: int) -> Path:
    return Path(os.environ["XDG_STATE_HOME"]) / "ddtree/hosts/lab" / str(gpu) / "service.json"


def start(runtime: ProcessRuntime, *words: str, gpu: int = 1) -> int:
    labels = dataclasses.replace(LABELS, gpu=gpu)
    instance = runtime.start(
        labels, Launch("engine", (sys.executable, "-c", PROGRAM, *words), {"MARK": "1"})
    )
    pid = int(instance.identity.removeprefix("pid "))
    STARTED.append(pid)
    deadline = time.monotonic() + 20
    while "up" not in runtime.log_lines(gpu, last=5, follow=False):
        assert time.monotonic() < deadline, "the program did not start"
        time.sleep(0.05)
    return pid


def test_a_started_service_is_found_again_with_all_that_it_was_started_with(
    runtime: ProcessRuntime,
) -> None:
    pid = start(runtime)
    [found] = ProcessRuntime("lab", gpus=4).instances()
    assert found.state == "running"
    assert found.labels == LABELS
    assert found.identity == f"pid {pid}"
    assert found.url == "http://127.0.0.1:31001"
    assert found.environment == {"MARK": "1"}
    assert abs(found.started_at - time.time()) < 60


def test_a_service_leads_its_own_group_and_session(runtime: ProcessRuntime) -> None:
    pid = start(runtime)
    assert os.getpgid(pid) == pid
    assert os.getsid(pid) == pid


@pytest.mark.parametrize("words", [(), ("stubborn",)])
def test_retiring_ends_the_whole_group_and_keeps_its_log(
    runtime: ProcessRuntime, words: tuple[str, ...]
) -> None:
    pid = start(runtime, *words)
    assert len(living(pid)) == 2
    [found] = runtime.instances()
    runtime.retire(found, grace_s=GRACE_S if not words else 0.5)
    assert living(pid) == []
    assert runtime.instances() == []
    assert list(runtime.log_lines(1, last=5, follow=False)) == ["up"]


def test_a_service_that_ended_by_itself_is_dead_and_can_be_cleared(
    runtime: ProcessRuntime,
) -> None:
    pid = start(runtime)
    os.killpg(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while runtime.instances()[0].state != "dead":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    runtime.retire(runtime.instances()[0], grace_s=GRACE_S)
    assert runtime.instances() == []


def test_another_process_with_the_recorded_pid_is_neither_alive_nor_stopped(
    runtime: ProcessRuntime,
) -> None:
    bystander = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
    )
    try:
        start(runtime)
        [real] = runtime.instances()
        record = json.loads(record_of(1).read_text())
        runtime.retire(real, grace_s=GRACE_S)
        record["pid"], record["started_at"] = bystander.pid, record["started_at"] - 3600
        record_of(1).write_text(json.dumps(record))
        [stale] = runtime.instances()
        assert stale.state == "dead"
        runtime.retire(stale, grace_s=GRACE_S)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "labels": {}}'])
def test_a_damaged_record_is_named_with_its_file(runtime: ProcessRuntime, text: str) -> None:
    record_of(1).parent.mkdir(parents=True)
    record_of(1).write_text(text)
    with pytest.raises(DdtreeError, match=r"service\.json: this record of a service is damaged"):
        runtime.instances()


def test_a_retired_service_is_kept_with_its_log_and_can_be_revived(
    runtime: ProcessRuntime,
) -> None:
    first = start(runtime)
    runtime.retire(runtime.instances()[0], grace_s=GRACE_S)
    [kept] = runtime.kept()
    assert (kept.state, kept.labels, kept.identity) == ("kept", LABELS, f"pid {first}")
    assert abs((kept.stopped_at or 0) - time.time()) < 60
    again = runtime.revive(kept)
    STARTED.append(int(again.identity.removeprefix("pid ")))
    [found] = runtime.instances()
    assert (found.labels, found.argv, found.environment) == (
        kept.labels,
        kept.argv,
        kept.environment,
    )
    assert runtime.kept() == []
    deadline = time.monotonic() + 20
    while list(runtime.log_lines(1, last=5, follow=False)) != ["up", "up"]:
        assert time.monotonic() < deadline, "the log did not go on"
        time.sleep(0.05)


def test_the_latest_kept_comes_first_and_a_removed_one_is_gone(runtime: ProcessRuntime) -> None:
    pids = []
    for _ in range(2):
        pids.append(start(runtime))
        runtime.retire(runtime.instances()[0], grace_s=GRACE_S)
    latest, earlier = runtime.kept()
    assert [latest.identity, earlier.identity] == [f"pid {pid}" for pid in reversed(pids)]
    runtime.remove(latest, grace_s=GRACE_S)
    assert runtime.kept() == [earlier]


def test_removing_a_running_service_ends_it_and_its_log(runtime: ProcessRuntime) -> None:
    pid = start(runtime)
    runtime.remove(runtime.instances()[0], grace_s=GRACE_S)
    assert living(pid) == []
    assert (runtime.instances(), runtime.kept()) == ([], [])
    with pytest.raises(DdtreeError, match="no log"):
        list(runtime.log_lines(1, last=5, follow=False))


def test_a_taken_port_is_seen(runtime: ProcessRuntime) -> None:
    import socket

    [port] = free_ports(1)
    assert runtime.port_holder("127.0.0.1", port) is None
    with socket.create_server(("127.0.0.1", port)):
        assert runtime.port_holder("127.0.0.1", port) == "Address already in use"


def test_following_a_log_sees_what_is_added(runtime: ProcessRuntime, tmp_path: Path) -> None:
    log = tmp_path / "ddtree/hosts/lab/1/log"
    log.parent.mkdir(parents=True)
    log.write_text("one\ntwo\nthree\n")
    lines = runtime.log_lines(1, last=2, follow=True)
    assert [next(lines), next(lines)] == ["two", "three"]
    with log.open("a") as file:
        file.write("four\n")
    assert next(lines) == "four"


def test_a_gpu_without_a_log_is_refused(runtime: ProcessRuntime) -> None:
    with pytest.raises(DdtreeError, match="GPU 3: no log: nothing was started here"):
        list(runtime.log_lines(3, last=5, follow=False))


def test_a_full_disk_starts_nothing_and_is_one_error(tmp_path: Path) -> None:
    # A limit on file sizes fails the write of the record as a full disk does.
    code = (
        "import resource, sys\n"
        "from ddtree_ops_cli.errors import DdtreeError\n"
        "from ddtree_ops_cli.services.labels import Labels\n"
        "from ddtree_ops_cli.services.runtimes import Launch\n"
        "from ddtree_ops_cli.services.runtimes.process import ProcessRuntime\n"
        "from tests.services.test_labels import LABELS\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    argv = [sys.executable, '-c', 'import time; time.sleep(60)', sys.argv[1]]\n"
        "    ProcessRuntime('lab', gpus=4).start(LABELS, Launch('engine', tuple(argv), {}))\n"
        "except DdtreeError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent.parent,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )
    assert "service.json: cannot write: File too large" in done.stdout, done.stderr
    assert not list(tmp_path.rglob("service.*"))
    commands = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    assert not [words for words in commands if words and str(tmp_path) in words]
