"""Locks on this machine, taken by real shells; tests/rig takes them over SSH."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ddtree_ops_cli.errors import DdtreeError, LockHeld
from ddtree_ops_cli.hosts.shell import ThisMachine
from ddtree_ops_cli.hosts.state import HostState
from ddtree_ops_cli.rollout.lock import LockLost, break_lock, hold, holders

HOLDER = """
import sys, time
from ddtree_ops_cli.hosts.shell import ThisMachine
from ddtree_ops_cli.hosts.state import HostState
from ddtree_ops_cli.rollout.lock import hold
with hold(HostState(ThisMachine("here"), sys.argv[1]), "gpu-1", purpose="deploy here"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def state(tmp_path: Path) -> HostState:
    return HostState(ThisMachine("here"), str(tmp_path / "state"))


def elsewhere(state: HostState) -> subprocess.Popen[str]:
    """Another command that holds gpu-1."""
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, state.directory], stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    with other.stdout:
        assert other.stdout.readline() == "held\n"
    return other


def test_a_lock_is_held_by_one_and_the_second_learns_by_whom_and_for_what(
    state: HostState,
) -> None:
    other = elsewhere(state)
    try:
        with (
            pytest.raises(LockHeld, match=r"gpu-1 is held by \S+@\S+, deploy here, since \d{4}-"),
            hold(state, "gpu-1", purpose="stop here"),
        ):
            raise AssertionError("the lock was given twice")
        with hold(state, "gpu-2", purpose="another GPU is another lock"):
            pass
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_lock_is_free_as_soon_as_its_holder_is_gone(
    state: HostState, number: signal.Signals
) -> None:
    other = elsewhere(state)
    other.send_signal(number)
    other.wait()
    with hold(state, "gpu-1", purpose="next", wait_s=5):
        pass
    [left] = holders(state)
    assert (left.name, left.held, left.purpose) == ("gpu-1", False, "next")


def test_waiting_ends_when_the_lock_is_free(state: HostState) -> None:
    other = elsewhere(state)
    threading.Timer(1.5, other.kill).start()
    begin = time.monotonic()
    with hold(state, "gpu-1", purpose="next", wait_s=30):
        assert 1.0 < time.monotonic() - begin < 25
    other.wait()


def test_a_broken_lock_stops_its_holder_at_the_next_thing_it_writes_down(state: HostState) -> None:
    with hold(state, "gpu-1", purpose="deploy here") as lock:
        lock.record({"run": "a", "kind": "begin"})
        [holder] = holders(state)
        assert holder.held
        break_lock(state, holder)
        with pytest.raises(LockLost, match="broken by somebody else"):
            lock.record({"run": "a", "kind": "end"})
    assert not holders(state)[0].held
    assert Path(state.directory, "audit.jsonl").read_text().count("\n") == 1


def test_breaking_spares_whoever_took_the_lock_since_it_was_looked_at(state: HostState) -> None:
    with hold(state, "gpu-1", purpose="first"):
        [seen] = holders(state)
    with hold(state, "gpu-1", purpose="second") as lock:
        with pytest.raises(LockHeld, match="somebody else took it meanwhile"):
            break_lock(state, seen)
        lock.record({"run": "b"})


def test_a_folder_that_cannot_be_written_is_one_error_with_the_key_to_change(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    state = HostState(ThisMachine("here"), str(tmp_path / "file" / "state"))
    with (
        pytest.raises(DdtreeError, match=r"no lock can be taken: mkdir: .*; .*state_directory"),
        hold(state, "gpu-1", purpose="x"),
    ):
        pass


def test_a_line_that_a_full_disk_cut_off_does_not_swallow_the_next(state: HostState) -> None:
    log = Path(state.directory, "audit.jsonl")
    log.parent.mkdir(parents=True)
    log.write_text('{"at":"2026-01-01T00:00:00Z","run":"a","ki')
    with hold(state, "gpu-1", purpose="x") as lock:
        lock.record({"run": "b", "kind": "begin"})
    assert log.read_text().splitlines()[1].endswith('"run": "b", "kind": "begin"}')


def test_a_home_directory_is_that_of_the_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with hold(HostState(ThisMachine("here"), "~/of mine"), "gpu-1", purpose='it\'s "quoted" $(x)'):
        pass
    assert "$(x)" in (tmp_path / "of mine/locks/gpu-1").read_text()
    assert not Path("~").exists()
