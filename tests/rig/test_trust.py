"""`ddtree hosts trust` with real sshd hosts."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys

import pytest

from tests.rig.conftest import Box, Operator
from tests.rig.rig import RigHost


def fingerprint(host: RigHost, kind: str = "ed25519") -> str:
    return host.run("ssh-keygen", "-lf", f"/etc/ssh/ssh_host_{kind}_key.pub").split()[1]


@pytest.fixture
def box(gpu1: Box, operator: Operator) -> Box:
    operator.profile("gpu1", gpu1.address)
    return gpu1


def answer(operator: Operator, text: str) -> tuple[int, str]:
    """Run `ddtree hosts trust gpu1` on a terminal and type `text`."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ddtree_ops_cli", "hosts", "trust", "gpu1"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=operator.home,
        env={**os.environ, **operator.ddtree.environment},
    )  # fmt: skip
    os.close(theirs)
    said = b""
    typed = False
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:
            break
        if not data:
            break
        said += data
        if not typed and b"[y/N]" in said:
            os.write(ours, text.encode())
            typed = True
    os.close(ours)
    return process.wait(), said.decode()


def test_each_key_is_shown_asked_for_and_added(box: Box, operator: Operator) -> None:
    code, said = answer(operator, "y\n")
    assert code == 0, said
    assert f"{fingerprint(box.host)} (ED25519)" in said
    assert f"{fingerprint(box.host, 'rsa')} (RSA)" in said
    lines = operator.known_hosts.read_text().splitlines()
    assert lines == [f"{box.address} {box.host.host_key(k)}" for k in ("ed25519", "rsa")]
    assert stat.S_IMODE(operator.known_hosts.stat().st_mode) == 0o600
    assert operator.ddtree("hosts", "facts", "gpu1", "--json").returncode == 0


def test_no_adds_nothing(box: Box, operator: Operator) -> None:
    code, said = answer(operator, "n\n")
    assert code == 1
    assert "nothing was added" in said
    assert not operator.known_hosts.exists()


def test_without_a_terminal_a_fingerprint_is_needed(box: Box, operator: Operator) -> None:
    done = operator.ddtree("hosts", "trust", "gpu1")
    assert done.returncode == 2
    assert "--fingerprint" in done.stderr
    assert not operator.known_hosts.exists()


def test_the_right_fingerprint_adds_that_key_alone(box: Box, operator: Operator) -> None:
    operator.known_hosts.write_text("# mine\nother ssh-ed25519 AAAA")
    shown = fingerprint(box.host)
    done = operator.ddtree("hosts", "trust", "gpu1", "--fingerprint", shown, "--json")
    assert done.returncode == 0, done.stderr
    (server,) = json.loads(done.stdout)["servers"]
    assert server["added"] == [{"type": "ssh-ed25519", "fingerprint": shown}]
    assert operator.known_hosts.read_text() == (
        f"# mine\nother ssh-ed25519 AAAA\n{box.address} {box.host.host_key()}\n"
    )


def test_trusting_again_changes_nothing(box: Box, operator: Operator) -> None:
    """The RSA key is still new, but nobody asked for it."""
    words = ("hosts", "trust", "gpu1", "--fingerprint", fingerprint(box.host))
    assert operator.ddtree(*words).returncode == 0
    before = operator.known_hosts.read_text()
    assert operator.ddtree(*words).returncode == 0
    again = operator.ddtree("hosts", "trust", "gpu1")
    assert again.returncode == 0
    assert "is known already (ED25519)" in again.stderr
    assert operator.known_hosts.read_text() == before


def test_a_wrong_fingerprint_adds_nothing(box: Box, operator: Operator) -> None:
    done = operator.ddtree("hosts", "trust", "gpu1", "--fingerprint", "SHA256:nope")
    assert done.returncode == 4
    assert "shows no key with a fingerprint that you gave" in done.stderr
    assert not operator.known_hosts.exists()


def test_a_dry_run_adds_nothing(box: Box, operator: Operator) -> None:
    done = operator.ddtree("hosts", "trust", "gpu1", "--dry-run")
    assert done.returncode == 0
    assert fingerprint(box.host) in done.stdout
    assert "would be added to" in done.stderr
    assert not operator.known_hosts.exists()


def test_names_are_hashed_if_the_user_wants_it(box: Box, operator: Operator) -> None:
    operator.configure("Host *\nHashKnownHosts yes\n")
    shown = fingerprint(box.host)
    assert operator.ddtree("hosts", "trust", "gpu1", "--fingerprint", shown).returncode == 0
    assert box.address not in operator.known_hosts.read_text()
    # OpenSSH itself finds the entry.
    found = ["ssh-keygen", "-F", box.address, "-f", operator.known_hosts]
    assert "found: line 1" in subprocess.run(found, capture_output=True, text=True).stdout
    assert operator.ddtree("hosts", "facts", "gpu1", "--json").returncode == 0


def test_a_known_host_is_left_alone(box: Box, operator: Operator) -> None:
    operator.knows((box.address, box.host))
    before = operator.known_hosts.read_text()
    done = operator.ddtree("hosts", "trust", "gpu1")
    assert done.returncode == 0
    assert "is known already (ED25519, RSA)" in done.stderr
    assert operator.known_hosts.read_text() == before


def test_a_changed_key_is_never_added(box: Box, operator: Operator) -> None:
    operator.knows((box.address, box.host))
    box.host.new_host_keys()
    before = operator.known_hosts.read_text()
    shown = fingerprint(box.host)
    done = operator.ddtree("hosts", "trust", "gpu1", "--fingerprint", shown)
    assert done.returncode == 4
    assert f"changed: {operator.known_hosts}:1 " in done.stderr
    assert operator.known_hosts.read_text() == before
    box.host.run("ssh-keygen", "-A")
    box.host.restart_sshd()


def test_one_key_that_is_known_does_not_excuse_another_that_changed(
    box: Box, operator: Operator
) -> None:
    other = box.host.host_key()[:-4] + "AAAA"
    text = f"{box.address} {box.host.host_key('rsa')}\n{box.address} {other}\n"
    operator.known_hosts.write_text(text)
    done = operator.ddtree("hosts", "trust", "gpu1", "--fingerprint", fingerprint(box.host))
    assert done.returncode == 4
    assert f"changed: {operator.known_hosts}:2 " in done.stderr
    assert operator.known_hosts.read_text() == text


def test_jump_hosts_are_made_known_on_the_way(
    behind: tuple[RigHost, RigHost, RigHost], operator: Operator
) -> None:
    operator.configure(
        "Host target\nHostName 10.77.13.2\nProxyJump ops@10.77.11.2,ops@10.77.12.2\n"
    )
    operator.profile("t", "target")
    dry = json.loads(operator.ddtree("hosts", "trust", "t", "-n", "--json").stdout)
    assert [server["known_as"] for server in dry["servers"]] == ["10.77.11.2"]
    shown = [word for host in behind for word in ("--fingerprint", fingerprint(host))]
    done = operator.ddtree("hosts", "trust", "t", *shown)
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in operator.known_hosts.read_text().splitlines()]
    assert names == ["10.77.11.2", "10.77.12.2", "10.77.13.2"]
    assert operator.ddtree("hosts", "facts", "t", "--json").returncode == 0


def test_the_lab_needs_no_trust(operator: Operator) -> None:
    done = operator.ddtree("hosts", "trust", "lab")
    assert done.returncode == 2
    assert "is this machine" in done.stderr
