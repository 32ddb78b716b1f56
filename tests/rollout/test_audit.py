"""Lines of the audit log in, runs out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from ddtree_ops_cli.errors import DdtreeError, HostUnreachable
from ddtree_ops_cli.hosts.shell import ThisMachine
from ddtree_ops_cli.hosts.state import HostState
from ddtree_ops_cli.rollout.audit import (
    Event,
    Journal,
    at_build,
    history,
    left_half_done,
    runs_of,
    told,
    unfinished,
)
from ddtree_ops_cli.rollout.lock import Lock, hold, holders


def begin(run: str, gpu: int = 1, **more: Any) -> str:
    return json.dumps(
        {"at": "2026-11-29T17:00:00Z", "run": run, "kind": "begin", "who": "op@desk",
         "command": "deploy ct200", "playbook": "replace", "gpu": gpu, "service": "ddtree",
         "before": "c0ffee", **more}
    )  # fmt: skip


def step(run: str, name: str, event: str, detail: str = "") -> str:
    return json.dumps({"run": run, "kind": "step", "step": name, "event": event, "detail": detail})


def end(run: str, result: str, detail: str = "") -> str:
    return json.dumps({"run": run, "kind": "end", "result": result, "detail": detail})


def test_events_become_runs_in_the_order_of_their_beginnings() -> None:
    lines = [begin("a"), begin("b", gpu=0), end("b", "done"), end("a", "failed", "not ready")]
    first, second = runs_of(lines)
    assert (first.run, first.result, first.detail) == ("a", "failed", "not ready")
    assert (second.run, second.gpu, second.result) == ("b", 0, "done")


def test_a_run_without_an_end_says_how_far_it_came() -> None:
    [run] = runs_of([begin("a"), step("a", "stop-previous", "done"), step("a", "start", "begin")])
    assert (run.result, run.last) == (None, "start begin")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([begin("a")], "a"),
        ([begin("a"), end("a", "failed")], None),
        ([begin("a"), step("a", "start", "stuck", "no Docker"), end("a", "failed")], "a"),
        ([begin("a"), begin("b"), end("b", "done")], None),
        ([begin("a"), begin("b", gpu=0), end("b", "done")], "a"),
        ([], None),
    ],
    ids=["cut off", "ended", "not undone", "mended since", "another GPU", "nothing"],
)
def test_only_the_last_run_on_a_gpu_can_be_left_half_done(
    lines: list[str], found: str | None
) -> None:
    run = left_half_done(runs_of(lines), gpu=1)
    assert (run.run if run else None) == found


def test_damaged_lines_and_runs_without_a_beginning_are_left_out() -> None:
    lines = ["", "{", '{"run": "x"', "[]", end("lost", "done"), begin("a"), end("a", "done")]
    assert [run.run for run in runs_of(lines)] == ["a"]


def test_a_run_whose_lock_is_held_goes_on_and_is_not_unfinished(tmp_path: Path) -> None:
    state = HostState(ThisMachine("here"), str(tmp_path))
    with hold(state, "gpu-1", purpose="x") as lock:
        Journal(lock).begin(command="deploy here", playbook="deploy", gpu=1)
        assert unfinished(state) == []
    [run] = unfinished(state)
    assert "`ddtree rollback here --gpu 1`" in told(run, "here")


def test_a_run_that_could_not_undo_its_steps_is_told_with_them() -> None:
    [run] = runs_of([begin("a"), step("a", "start", "stuck", "no Docker"), end("a", "failed")])
    assert "deploy ct200 by op@desk at 2026-11-29T17:00:00Z failed and could not undo start; " in (
        told(run, "ct200")
    )


def test_a_build_is_written_down_under_a_lock_of_its_own(tmp_path: Path) -> None:
    state = HostState(ThisMachine("here"), str(tmp_path))
    with at_build(state, purpose="build x:1", wait_s=0):
        [holder] = holders(state)
        assert (holder.name, holder.held, holder.purpose) == ("build", True, "build x:1")
    with pytest.raises(DdtreeError), at_build(state, purpose="build x:2", wait_s=0):
        raise DdtreeError("no space")
    done, failed = history(state)
    assert (done.command, done.lock, done.result) == ("build x:1", "build", "done")
    assert (failed.result, failed.detail) == ("failed", "no space")


def test_what_a_journal_writes_is_read_back_with_the_hosts_time(tmp_path: Path) -> None:
    state = HostState(ThisMachine("here"), str(tmp_path))
    assert history(state) == []
    with hold(state, "gpu-1", purpose="x") as lock:
        journal = Journal(lock)
        journal.begin(command="deploy", playbook="deploy", gpu=1, service="ddtree", before=None)
        journal.step("start-service", "begin", 'start ddtree: "ü"\n$(x)')
        journal.end("done")
    [run] = history(state)
    assert (run.result, run.gpu, run.last) == ("done", 1, "start-service begin")
    assert run.events[1]["detail"] == 'start ddtree: "ü"\n$(x)'
    assert run.at.endswith("Z")


class Cut:
    """A lock whose link is gone."""

    def record(self, entry: object) -> None:
        raise HostUnreachable("the link was cut", where="host there")


def test_a_run_whose_link_is_gone_does_not_go_on_but_may_undo() -> None:
    """The lock went with the link: another may be at work by now."""
    journal = Journal(cast(Lock, Cut()))
    events: tuple[Event, ...] = ("begin", "done", "interrupted")
    for event in events:
        with pytest.raises(HostUnreachable):
            journal.step("start-service", event)
    with pytest.raises(HostUnreachable):
        journal.end("done")
    journal.step("start-service", "undone")
    journal.end("failed")
