from __future__ import annotations

import pytest

from ddtree_ops_cli.errors import DdtreeError, HostUnreachable
from ddtree_ops_cli.services.observation import Observed
from ddtree_ops_cli.services.overview import document, show
from ddtree_ops_cli.services.runtimes import Instance
from tests.services.test_labels import LABELS

INSTANCE = Instance(LABELS, "running", "pid 1", "http://127.0.0.1:31001", 5.0, (), {})


def observed(uptime_s: float = 60.0) -> Observed:
    return Observed(INSTANCE, "healthy", "", uptime_s, 4.256)


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (185, "3 min 5 s"),
        (7800, "2 h 10 min"),
        (3 * 86400 + 4 * 3600 + 59, "3 d 4 h"),
    ],
)
def test_an_uptime_reads_as_people_say_it(
    capsys: pytest.CaptureFixture[str], seconds: float, says: str
) -> None:
    show({"lab": [observed(seconds)]})
    assert f" {says} " in capsys.readouterr().out


def test_one_table_shows_services_idle_hosts_and_those_that_do_not_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show({"lab": [observed()], "idle": [], "gone": HostUnreachable("no route", mend="look")})
    header, tree, idle, gone = capsys.readouterr().out.splitlines()
    assert " ".join(header.split()) == "host GPU service engine budget port health uptime accept"
    assert " ".join(tree.split()) == "lab 1 ddtree lab 0.1.0 16 31001 healthy 1 min 4.26"
    assert "stopped: nothing is deployed" in idle
    assert "unreachable: no route" in gone


def test_the_document_has_the_same_with_units_in_its_names() -> None:
    found = document({"lab": [observed()], "gone": HostUnreachable("no route")})
    assert found["gone"] == {"error": "no route"}
    [service] = found["lab"]["services"]
    assert service["uptime_s"] == 60.0
    assert service["accept_length"] == 4.256
    assert service["spec_hash"] == LABELS.spec_hash
    assert service["port"] == LABELS.port


def test_a_host_that_answers_with_an_error_is_not_said_to_be_unreachable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show({"ct200": DdtreeError("Docker is not running", mend="start it")})
    assert "failed: Docker is not running" in capsys.readouterr().out
