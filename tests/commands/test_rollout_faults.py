"""A rollout that is broken off at any step: what is left is told, and one more command mends it.

The faults that this machine can have; tests/rig has those of real hosts.
"""

from __future__ import annotations

import signal

import pytest

from tests.conftest import Ddtree
from tests.rollout.broken_off import ended, held, on, services, tell

BEFORE = on("tiny", ("deploy", "--budget", "8"))
REPLACE = on("tiny", ("deploy", "--budget", "12"))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["stop-previous", "start-service"])
def test_a_killed_command_is_told_as_cut_off_and_the_next_one_mends_it(
    tiny: Ddtree, step: str, when: str
) -> None:
    tell(tiny, *BEFORE)
    with held(tiny, step, when, REPLACE) as process:
        process.kill()
        ended(process)
    last = tell(tiny, "history", "tiny")[-1]
    assert (last["playbook"], last["result"], last["last"]) == ("replace", None, f"{step} begin")
    status = tell(tiny, "status", "tiny")["tiny"]
    assert [run["run"] for run in status["unfinished"]] == [last["run"]]
    assert len([s for s in status["services"] if s["state"] == "running"]) <= 1
    mended(tiny)


@pytest.mark.parametrize("command", ["rollback", "stop"])
def test_what_was_cut_off_is_named_whatever_the_next_command_is(tiny: Ddtree, command: str) -> None:
    tell(tiny, *BEFORE)
    with held(tiny, "start-service", "after", REPLACE) as process:
        process.kill()
        ended(process)
    next_one = tiny(*on("tiny", (command,)))
    assert next_one.returncode == 0, next_one.stderr
    assert "was cut off at start-service begin" in next_one.stderr
    assert services(tiny, "tiny") == ([(8, "healthy")] if command == "rollback" else [])
    assert tell(tiny, "status", "tiny")["tiny"]["unfinished"] == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["stop-previous", "wait-ready"])
def test_ctrl_c_brings_back_what_was_there(tiny: Ddtree, step: str, when: str) -> None:
    tell(tiny, *BEFORE)
    with held(tiny, step, when, REPLACE) as process:
        process.send_signal(signal.SIGINT)
        code, err = ended(process)
    assert code == 130, err
    assert services(tiny, "tiny") == [(8, "healthy")]
    assert tell(tiny, "history", "tiny")[-1]["result"] == "interrupted"
    mended(tiny)


def test_ctrl_c_undoes_nothing_where_somebody_broke_the_lock(tiny: Ddtree) -> None:
    """What is on the GPU is theirs by then."""
    tell(tiny, *BEFORE)
    with held(tiny, "quick-smoke", "after", REPLACE) as process:
        broken = tiny("lock", "break", "tiny", "gpu-0")
        assert broken.returncode == 0, broken.stderr
        process.send_signal(signal.SIGINT)
        code, err = ended(process)
    assert code == 5, err
    assert "the lock gpu-0 was broken by somebody else" in err
    assert services(tiny, "tiny") == [(12, "healthy")]
    mended(tiny)


def test_a_second_operator_is_refused_with_the_firsts_name_and_the_first_goes_on(
    tiny: Ddtree,
) -> None:
    tell(tiny, *BEFORE)
    with held(tiny, "start-service", "before", REPLACE) as process:
        refused = tiny(*REPLACE)
    code, err = ended(process)
    assert refused.returncode == 5, refused.stderr
    assert "deploy tiny, since" in refused.stderr
    assert code == 0, err
    mended(tiny)


def mended(ddtree: Ddtree) -> None:
    """One further deploy ends in a healthy service, and nobody is left with the lock."""
    again = ddtree(*REPLACE)
    assert again.returncode == 0, again.stderr
    assert services(ddtree, "tiny") == [(12, "healthy")]
    assert not any(lock["held"] for lock in tell(ddtree, "lock", "show", "tiny"))
    assert tell(ddtree, "history", "tiny")[-1]["result"] == "done"
    assert tell(ddtree, "status", "tiny")["tiny"]["unfinished"] == []
