"""A rollout that a fault breaks off: what is left is told truly, and one more command mends it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.lab.random_pair import write_random_pair
from tests.rig.conftest import DockerHosts, Operator
from tests.rig.rig import Rig
from tests.rig.rollout_stage import GPU, Scene, Seen, Stage
from tests.rollout import matrix
from tests.rollout.broken_off import ended, held, on
from tests.rollout.matrix import Cell, Record

SAMPLE = [
    Cell("replace", "start-service", "kill -9"),
    Cell("replace", "wait-ready", "Ctrl-C"),
    Cell("replace", "start-service", "link cut briefly"),
    Cell("rollback", "stop-previous", "link cut for good"),
    Cell("replace", "wait-ready", "dockerd killed"),
    Cell("deploy", "start-service", "power off"),
    Cell("replace", "start-service", "disk full"),
    Cell("stop", "stop-previous", "second operator"),
]
CELLS = matrix.left_to_run(os.environ.get("PART", "1/1")) if matrix.WHOLE else SAMPLE


@dataclass
class Broken:
    """How a command ended that was broken off."""

    exit_code: int
    said: str


@dataclass(frozen=True)
class Fault:
    when: str
    """`before` the step is applied or `after`, before that is written down."""
    strike: Callable[[Stage, subprocess.Popen[str], Scene], None]
    """While the command is held there."""
    ready: Callable[[Stage], None] = lambda _: None
    """Before the command begins."""
    meanwhile: Callable[[Stage], None] = lambda _: None
    """When it goes on."""
    over: Callable[[Stage], None] = lambda _: None
    """When it has ended."""


def refuse_another(stage: Stage, process: subprocess.Popen[str], scene: Scene) -> None:
    second = stage.ddtree(*on("ct", ("deploy", "--budget", str(scene.budget)), GPU))
    assert second.returncode == 5, second.stderr
    assert f"{scene.words[0]} ct, since" in second.stderr
    assert stage.lock() == f"held: {scene.words[0]} ct"


def unplug(stage: Stage, *_: object) -> None:
    stage.rig.plug(stage.box.cable, up=False)
    time.sleep(6)  # longer than the keep-alives that this operator's configuration allows


def plug_in(stage: Stage) -> None:
    stage.rig.plug(stage.box.cable, up=True)


def plug_in_soon(stage: Stage) -> None:
    time.sleep(4)
    plug_in(stage)


def kill_dockerd(stage: Stage, *_: object) -> None:
    stage.host.run("sh", "-c", "kill -9 $(cat /run/docker.pid); rm -f /run/docker.pid")


def refuse_and_make_room(stage: Stage) -> None:
    """While nothing can be written down, nothing is begun."""
    before = stage.look()
    refused = stage.ddtree(*on("ct", ("deploy", "--budget", "16"), GPU))
    assert refused.returncode == 1, refused.stderr
    assert "cannot be written" in refused.stderr
    assert stage.look() == before
    stage.large_disks()


FAULTS = {
    "kill -9": Fault("after", lambda _, process, __: process.kill()),
    "Ctrl-C": Fault("after", lambda _, process, __: process.send_signal(signal.SIGINT)),
    "link cut briefly": Fault("before", unplug, meanwhile=plug_in_soon),
    "link cut for good": Fault("before", unplug, over=plug_in),
    "dockerd killed": Fault("before", kill_dockerd, over=lambda stage: stage.host.start_docker()),
    "power off": Fault("after", lambda stage, *_: stage.host.off(), over=Stage.power_on),
    "disk full": Fault(
        "before",
        lambda stage, *_: stage.fill_disks(),
        ready=Stage.small_disks,
        over=refuse_and_make_room,
    ),
    "second operator": Fault("before", refuse_another),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    write_random_pair(folder)
    for one in (folder, *folder.rglob("*")):  # the login of the host is not root
        one.chmod(0o755 if one.is_dir() else 0o644)
    return folder


@pytest.fixture
def stage(operator: Operator, docker_hosts: DockerHosts, rig: Rig, pair: Path) -> Iterator[Stage]:
    """A host of this file's own: a cell begins with what the one before it ended with."""
    there = "/srv/models/random-pair"
    box = docker_hosts("faults", "10.77.25", access="gpus", shared={pair: there})
    operator.serves("ct", box)
    operator.declares(
        "models",
        "lab-pair",
        f"target: {there}/target\ndrafter: {there}/drafter\ncontext_length: 512\n",
    )
    return Stage(operator, box, rig)


def broken_off(stage: Stage, cell: Cell, scene: Scene) -> Broken:
    fault = FAULTS[cell.fault]
    with held(stage.ddtree, cell.step, fault.when, scene.words, come_back_s=8) as process:
        fault.strike(stage, process, scene)
    fault.meanwhile(stage)
    code, said = ended(process)
    fault.over(stage)
    assert "Traceback" not in said, said
    return Broken(code, said)


def judge_the_run(run: dict[str, Any], cell: Cell, broken: Broken) -> str:
    """The exit code and the audit log fit the fault; returns what the log says."""
    assert run["playbook"] == cell.playbook
    stuck = [event["step"] for event in run["events"] if event.get("event") == "stuck"]
    results: dict[str, dict[int, str | None]] = {
        "kill -9": {-signal.SIGKILL: None},
        "Ctrl-C": {130: "interrupted"},
        "link cut briefly": {4: "failed"},
        "link cut for good": {4: None},
        "dockerd killed": {0: "done", 1: "failed", 6: "failed"},
        "power off": {4: None},
        # What could not be written down is not in the log, the end least of all.
        "disk full": {0: None, 1: None, 6: None},
        "second operator": {0: "done"},
    }
    assert run["result"] == results[cell.fault][broken.exit_code], (run, broken.said)
    if run["result"] is None and cell.fault != "disk full":
        assert run["last"] == f"{cell.step} begin"
    if cell.fault == "link cut for good":
        assert "nothing was undone" in broken.said
    if cell.fault == "disk full":
        assert "not in the audit log" in broken.said
    if stuck:
        assert f"not undone: {', '.join(stuck)}; `ddtree status` says what runs" in broken.said
    if run["result"] is None:
        return f"cut off at {run['last'] or 'its begin'}"
    return f"{run['result']}, stuck at {', '.join(stuck)}" if stuck else str(run["result"])


def judge_what_is_left(left: list[Seen], cell: Cell, scene: Scene, broken: Broken) -> str:
    """A command that undid its work left what was there; one that succeeded, what it promised."""
    current = [one for one in left if not one.kept]
    assert len(current) <= 1, current
    running = [one for one in left if one.running]
    assert len(running) <= 1, running
    if cell.fault in ("Ctrl-C", "link cut briefly"):
        before = [(scene.old.identity, True)] if scene.old else []
        assert [(one.identity, one.well) for one in current] == before, broken.said
    if broken.exit_code == 0:
        assert all(one.well for one in current), current
        wanted = None if cell.playbook == "stop" else scene.budget
        if scene.wanted:
            wanted = scene.wanted.budget
        assert [one.budget for one in current] == ([] if wanted is None else [wanted])
    return told(left, scene)


def told(found: list[Seen], scene: Scene) -> str:
    """In the words of the page."""
    said = []
    for one in sorted(found, key=lambda one: one.kept):
        name = "new"
        if scene.old and one.identity == scene.old.identity:
            name = "old"
        elif one.identity in scene.earlier and not scene.wanted:
            name = "earlier"
        how = "healthy" if one.generates else "not ready" if one.running else "stopped"
        if one.kept:
            said.append(f"{name} kept")
        else:
            said.append(f"{name} {how}" + ("" if one.settled else ", not settled"))
    if not any(not one.kept for one in found):
        said.insert(0, "nothing runs")
    return "; ".join(said)


def mend(stage: Stage, cell: Cell, scene: Scene, *, half_done: bool) -> tuple[str, str]:
    """One further command: which, and what the GPU has then."""
    kept = sorted((one for one in stage.look() if one.kept), key=lambda one: one.stopped_at)
    steps = [c.step for c in matrix.cells() if (c.playbook, c.fault) == (cell.playbook, cell.fault)]
    back = bool(kept) and steps.index(cell.step) % 2 == 1
    words = ("rollback",) if back else ("deploy", "--budget", str(scene.budget))
    again = stage.ddtree(*on("ct", words, GPU))
    assert again.returncode == 0, again.stderr
    if half_done:
        assert f"{scene.words[0]} ct by" in again.stderr
    [now] = [one for one in stage.look() if not one.kept]
    assert now.well, now
    assert now.budget == (kept[-1].budget if back else scene.budget)
    status = stage.status()
    assert [s["health"] for s in status["services"]] == ["healthy"]
    assert status["unfinished"] == []
    assert stage.is_lock_free()
    begun, *_, end = stage.last_run()
    # What finds nothing to change writes nothing down.
    last = scene.words[0] if "nothing to change" in again.stderr else words[0]
    assert (begun["command"], end.get("result")) == (f"{last} ct", "done")
    [line] = told([now], scene).split(";")
    return words[0], line


def run_cell(stage: Stage, cell: Cell) -> Record:
    begin = time.monotonic()
    fault = FAULTS[cell.fault]
    scene = stage.set_up(cell.playbook)
    since = stage.foreign_runs_since()
    fault.ready(stage)
    broken = broken_off(stage, cell, scene)
    status, lock, run = stage.told(scene)
    log = judge_the_run(run, cell, broken)
    left = judge_what_is_left(stage.look(), cell, scene, broken)
    half_done = log.startswith("cut off") or "stuck" in log
    if bool(status["unfinished"]) != (half_done and lock == "free"):
        status, lock, _ = stage.told(scene)  # the lock became free between the questions
    assert bool(status["unfinished"]) == (half_done and lock == "free"), (status, log, lock)
    by, ends = mend(stage, cell, scene, half_done=half_done)
    assert stage.foreign() == scene.foreign
    if cell.fault != "power off":
        assert stage.foreign_runs_since() == since
    return replace(
        blank(cell, begin),
        exit_code=broken.exit_code,
        left=left,
        log=log,
        lock=lock,
        mend=by,
        ends=ends,
    )


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_one_more_command_mends_it_and_what_is_told_is_true(stage: Stage, cell: Cell) -> None:
    begin = time.monotonic()
    try:
        record = run_cell(stage, cell)
    except Exception as error:
        stage.restore()
        why = " ".join(f"{type(error).__name__}: {error}".split())
        keep(replace(blank(cell, begin), failure=why[:2000]))
        raise
    keep(record)


def blank(cell: Cell, begin: float) -> Record:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    seconds = round(time.monotonic() - begin, 1)
    return Record(cell.playbook, cell.step, cell.fault, matrix.commit(), at, seconds)


def keep(record: Record) -> None:
    if matrix.WHOLE:
        matrix.append(record)
