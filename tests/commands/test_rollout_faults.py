"""A rollout that is broken off at any step: what is left is told, and one more command mends it.

The faults that this machine can have; tests/rig has those of real hosts.
"""

from __future__ import annotations

import signal

import pytest

from tests.conftest import Ddtree
from tests.rollout.broken_off import (
    BEFORE,
    COMMAND,
    cells,
    ended,
    held,
    mended,
    on,
    services,
    tell,
)

# A process of this machine has no GPU and no policy of restarts.
NOT_HERE = frozenset({"check-gpu", "settle"})


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("playbook", "step"), cells("stop-previous", "start-service", without=NOT_HERE)
)
def test_a_killed_command_is_told_as_cut_off_and_the_next_one_mends_it(
    tiny: Ddtree, playbook: str, step: str, when: str
) -> None:
    for words in BEFORE[playbook]:
        tell(tiny, *on("tiny", words))
    with held(tiny, step, when, on("tiny", COMMAND[playbook])) as process:
        process.kill()
        ended(process)
    last = tell(tiny, "history", "tiny")[-1]
    assert (last["playbook"], last["result"], last["last"]) == (playbook, None, f"{step} begin")
    status = tell(tiny, "status", "tiny")["tiny"]
    assert [run["run"] for run in status["unfinished"]] == [last["run"]]
    assert len([s for s in status["services"] if s["state"] == "running"]) <= 1
    mended(tiny, "tiny")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("playbook", "step"), cells("stop-previous", "wait-ready", without=NOT_HERE)
)
def test_ctrl_c_brings_back_what_was_there(
    tiny: Ddtree, playbook: str, step: str, when: str
) -> None:
    for words in BEFORE[playbook]:
        tell(tiny, *on("tiny", words))
    before = services(tiny, "tiny")
    with held(tiny, step, when, on("tiny", COMMAND[playbook])) as process:
        process.send_signal(signal.SIGINT)
        code, err = ended(process)
    assert code == 130, err
    assert services(tiny, "tiny") == before
    assert tell(tiny, "history", "tiny")[-1]["result"] == "interrupted"
    mended(tiny, "tiny")


@pytest.mark.parametrize(("playbook", "step"), cells("start-service", without=NOT_HERE))
def test_a_second_operator_is_refused_with_the_firsts_name_and_the_first_goes_on(
    tiny: Ddtree, playbook: str, step: str
) -> None:
    for words in BEFORE[playbook]:
        tell(tiny, *on("tiny", words))
    with held(tiny, step, "before", on("tiny", COMMAND[playbook])) as process:
        refused = tiny(*on("tiny", COMMAND["deploy"]))
    code, err = ended(process)
    assert refused.returncode == 5, refused.stderr
    assert f"{COMMAND[playbook][0]} tiny, since" in refused.stderr
    assert code == 0, err
    mended(tiny, "tiny")
