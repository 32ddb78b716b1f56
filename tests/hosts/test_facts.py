"""Recorded answers of a rig host (Debian 13, Docker 26.1.5, a stand-in nvidia-smi) to facts."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from ddtree_ops_cli.hosts import probe
from ddtree_ops_cli.hosts.container_engine import ContainerEngine, failure, parse
from ddtree_ops_cli.hosts.facts import (
    Clock,
    Disk,
    HostFacts,
    Listener,
    System,
    interpret,
    read_facts,
)
from ddtree_ops_cli.hosts.report import document
from ddtree_ops_cli.hosts.shell import ThisMachine
from ddtree_ops_cli.hosts.unknown import Unknown

CASES = Path(__file__).parent / "cases"
RECORDED_AT = 1795968685.845776842


def facts(text: str) -> HostFacts:
    answers = probe.answers(text)
    return interpret(
        answers, probe.ALL, began_at=RECORDED_AT - 3.1, first_output_at=RECORDED_AT - 2.9
    )


def recorded(name: str) -> str:
    return (CASES / f"{name}.txt").read_text()


def test_a_healthy_host() -> None:
    found = facts(recorded("healthy"))
    assert found.unknown == {}
    assert found.system == System(
        "gpu2", "Linux 6.12.57-amd64", "x86_64", "Debian GNU/Linux 13 (trixie)"
    )
    assert found.clock == Clock(offset_s=3.0, uncertainty_s=0.1)
    assert found.disks == (
        Disk("/", 270553174016, 75106099200),
        Disk("/var/lib/docker", 270553174016, 75106099200),
    )
    assert found.ports == (Listener("0.0.0.0", 22), Listener("::", 22))
    assert found.engine == ContainerEngine("26.1.5+dfsg1", "/var/lib/docker", False, "overlay2", ())
    assert not isinstance(found.gpus, Unknown)
    assert [gpu.index for gpu in found.gpus] == [0, 1]
    assert [len(gpu.holders) for gpu in found.gpus] == [0, 1]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("no-rights", "this user may not use Docker"),
        ("engine-down", "Docker is not running"),
    ],
)
def test_an_engine_that_does_not_answer_hides_nothing_else(name: str, what: str) -> None:
    found = facts(recorded(name))
    assert {n: reason.what for n, reason in found.unknown.items()} == {"engine": what}


def test_an_answer_that_breaks_off_keeps_what_came() -> None:
    whole = recorded("healthy")
    for name in ("memory", "ports", "engine", "disks", "gpus", "holders"):
        cut = facts(whole[: whole.index(f"\x1e{name} ")])
        assert cut.system == facts(whole).system
        missing = "gpus" if name == "holders" else name
        assert missing in cut.unknown
        assert list(cut.unknown) == list(document("x", cut)["unknown"])


def test_what_hung_is_named_and_what_was_not_reached_says_so() -> None:
    whole = recorded("healthy")
    cut = facts(whole[: whole.index("\x1eengine ")])
    assert {name: reason.what for name, reason in cut.unknown.items()} == {
        "engine": "Docker does not answer",
        "disks": "was not read, because engine before it hung",
        "gpus": "was not read, because engine before it hung",
    }
    cut = facts(whole[: whole.index("\x1egpus ")])
    assert cut.unknown["gpus"].what == "nvidia-smi hangs (exit code 124)"


def test_a_hosts_words_cannot_steer_the_terminal() -> None:
    found = facts("\x1egpus 9\n\x1b[2Jred\x07\n")
    assert isinstance(found.gpus, Unknown)
    assert found.gpus.what.endswith("(exit code 9: \ufffd[2Jred\ufffd)")


def test_every_fact_survives_an_answer_that_makes_no_sense() -> None:
    for text in ("", "x", "1 2 3", "\ufffd\n\n:", "-"):
        answers = {name: probe.Answer(0, text) for name in probe.answers(recorded("healthy"))}
        found = interpret(answers, probe.ALL, began_at=0.0, first_output_at=None)
        assert all(
            isinstance(getattr(found, field.name), Unknown | tuple)
            for field in dataclasses.fields(found)
        )
        assert isinstance(found.clock, Unknown) or text == ""


def test_what_was_not_asked_is_not_read() -> None:
    found = interpret({}, (), began_at=0.0, first_output_at=None)
    assert {reason.what for reason in found.unknown.values()} == {"was not read"}


@pytest.mark.parametrize(
    ("info", "hook", "spec", "access"),
    [
        (
            '{"ServerVersion": "28.5.1", "Runtimes": {"nvidia": {}, "runc": {}}}',
            False,
            False,
            ("gpus",),
        ),
        ('{"ServerVersion": "26.1.5", "Runtimes": {"runc": {}}}', True, False, ("gpus",)),
        ('{"ServerVersion": "26.1.5", "CDISpecDirs": ["/etc/cdi"]}', False, True, ("cdi",)),
        ('{"ServerVersion": "26.1.5", "CDISpecDirs": []}', False, True, ()),
        ('{"ServerVersion": "26.1.5", "CDISpecDirs": ["/etc/cdi"]}', False, False, ()),
        (
            '{"ServerVersion": "28.5.1", "CDISpecDirs": ["/etc/cdi"], "DiscoveredDevices":'
            ' [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}',
            False,
            False,
            ("cdi",),
        ),
    ],
)
def test_how_a_container_gets_a_gpu(
    info: str, hook: bool, spec: bool, access: tuple[str, ...]
) -> None:
    found = parse(
        0,
        f"WARNING: No swap limit support\n{info}",
        hook=hook,
        cdi="/etc/cdi/nvidia.yaml" if spec else "",
    )
    assert isinstance(found, ContainerEngine)
    assert found.gpu_access == access


@pytest.mark.parametrize("exit_code", [124, 137])
def test_a_stuck_daemon(exit_code: int) -> None:
    assert parse(exit_code, "", hook=False, cdi="") == Unknown(
        "Docker does not answer", "see `journalctl -u docker` on the host"
    )


def test_this_machine_is_read_with_the_same_script() -> None:
    found = read_facts(ThisMachine("lab"))
    assert isinstance(found.system, System)
    assert isinstance(found.clock, Clock)
    assert abs(found.clock.offset_s) < 5


@pytest.mark.parametrize("sections", [probe.ALL, probe.LIGHT, ("disks",), ()])
def test_the_script_is_one_for_a_plain_posix_shell(sections: tuple[str, ...]) -> None:
    done = subprocess.run(
        ["sh", "-n"], input=probe.script(sections), text=True, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_socket_without_a_daemon_is_a_docker_that_is_down() -> None:
    dial = "failed to open the raw stream connection: dial unix /var/run/docker.sock: connect: "
    for said in ("no such file or directory", "connection refused"):
        assert failure(1, dial + said).what == "Docker is not running"
    assert failure(1, dial + "permission denied").what == "this user may not use Docker"
