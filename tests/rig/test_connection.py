"""Connecting to real sshd hosts, and every way in which that fails."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from ddtree_ops_cli.errors import DdtreeError, HostUnreachable
from ddtree_ops_cli.hosts.fleet import each
from ddtree_ops_cli.profiles.load import Loaded
from ddtree_ops_cli.profiles.schema import HostProfile
from tests.rig.conftest import Box, Operator
from tests.rig.rig import Rig, RigHost


def refused(operator: Operator, host: Loaded[HostProfile]) -> str:
    with operator.connections() as connections, pytest.raises(HostUnreachable) as caught:
        connections.to(host).run(["true"])
    assert caught.value.exit_code == 4
    return str(caught.value)


def test_words_reach_the_command_as_they_are(gpu1: Box, operator: Operator) -> None:
    host = operator.profile("gpu1", gpu1.address)
    operator.knows((gpu1.address, gpu1.host))
    words = ["a b", "$HOME", "`id`", "'", '"', "*", "", "ü\n!", "; exit 3"]
    with operator.connections() as connections:
        done = connections.to(host).run(["printf", "%s\\0", *words])
        assert done.out.split("\0")[:-1] == words
        failed = connections.to(host).run(["sh", "-c", "cat; echo oops >&2; exit 7"], stdin="in")
    assert (failed.exit_code, failed.out, failed.err) == (7, "in", "oops\n")


def test_a_host_is_logged_in_to_once_for_everything(gpu1: Box, operator: Operator) -> None:
    host = operator.profile("gpu1", gpu1.address)
    operator.knows((gpu1.address, gpu1.host))
    before = gpu1.host.logins()
    with operator.connections() as connections:
        ways = {str(n): connections.to(host) for n in range(12)}
        found = each(ways, lambda way: way.run(["sh", "-c", "echo $PPID; sleep 0.1"]).out)
        again = connections.to(host).run(["true"]).exit_code
    assert len(found) == 12
    assert not [result for result in found.values() if isinstance(result, DdtreeError)]
    assert again == 0
    assert gpu1.host.logins() - before == 1


def test_only_a_few_commands_run_at_once(gpu1: Box, operator: Operator) -> None:
    """A server that allows eight sessions still serves twelve commands.

    Four at once: sshd may count those that have just been closed, as many again, a moment longer.
    """
    gpu1.host.restart_sshd("MaxSessions 8\n")
    host = operator.profile("gpu1", gpu1.address)
    operator.knows((gpu1.address, gpu1.host))
    with operator.connections() as connections:
        way = connections.to(host)
        found = each(dict.fromkeys(map(str, range(12)), way), lambda w: w.run(["sleep", "0.2"]))
    assert not [result for result in found.values() if isinstance(result, DdtreeError)]


def test_much_output_on_both_streams_and_much_input(gpu1: Box, operator: Operator) -> None:
    host = operator.profile("gpu1", gpu1.address)
    operator.knows((gpu1.address, gpu1.host))
    text = "0123456789abcde\n" * 200_000
    with operator.connections() as connections:
        done = connections.to(host).run(["tee", "/dev/stderr"], stdin=text)
    assert done.out == text
    assert done.err == text


def test_a_command_may_end_without_reading_its_input(gpu1: Box, operator: Operator) -> None:
    host = operator.profile("gpu1", gpu1.address)
    operator.knows((gpu1.address, gpu1.host))
    with operator.connections() as connections:
        way = connections.to(host)
        assert way.run(["sh", "-c", "exit 3"], stdin="x" * 5_000_000).exit_code == 3
        assert way.run(["head", "-c", "2"], stdin="x" * 5_000_000).out == "xx"


def test_a_command_that_takes_too_long_is_given_up(gpu1: Box, operator: Operator) -> None:
    host = operator.profile("gpu1", gpu1.address)
    operator.knows((gpu1.address, gpu1.host))
    with operator.connections() as connections:
        way = connections.to(host)
        with pytest.raises(DdtreeError, match="`sleep 60` did not end in time"):
            way.run(["sleep", "60"], timeout_s=0.5)
        assert way.run(["echo", "still here"]).out == "still here\n"


def test_an_unknown_key_is_refused_with_its_fingerprint(gpu1: Box, operator: Operator) -> None:
    said = refused(operator, operator.profile("gpu1", gpu1.address))
    shown = gpu1.host.run("ssh-keygen", "-lf", "/etc/ssh/ssh_host_ed25519_key.pub").split()[1]
    assert f"is unknown: it shows the ED25519 key {shown}" in said
    assert "`ddtree hosts trust gpu1`" in said
    assert not operator.known_hosts.exists()


def test_a_changed_key_names_the_line_that_contradicts(gpu1: Box, operator: Operator) -> None:
    other = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes(32)).decode()
    operator.known_hosts.write_text(f"# mine\n\n{gpu1.address} ssh-ed25519 {other}\n")
    said = refused(operator, operator.profile("gpu1", gpu1.address))
    assert f"changed: {operator.known_hosts}:3 has the ED25519 key SHA256:" in said
    assert f"ssh-keygen -R '{gpu1.address}' -f {operator.known_hosts}" in said


def test_a_key_of_another_type_than_the_known_one_is_refused(gpu1: Box, operator: Operator) -> None:
    other = base64.b64encode(b"\0\0\0\x13ecdsa-sha2-nistp256" + bytes(40)).decode()
    operator.known_hosts.write_text(f"{gpu1.address} ecdsa-sha2-nistp256 {other}\n")
    assert "changed" in refused(operator, operator.profile("gpu1", gpu1.address))


def test_only_the_rsa_key_is_known(gpu1: Box, operator: Operator) -> None:
    operator.known_hosts.write_text(f"{gpu1.address} {gpu1.host.host_key('rsa')}\n")
    with operator.connections() as connections:
        connections.to(operator.profile("gpu1", gpu1.address)).open()


def test_a_hashed_entry_is_read(gpu1: Box, operator: Operator) -> None:
    operator.knows((gpu1.address, gpu1.host))
    subprocess.run(
        ["ssh-keygen", "-q", "-H", "-f", operator.known_hosts], check=True, capture_output=True
    )
    assert gpu1.address not in operator.known_hosts.read_text()
    with operator.connections() as connections:
        connections.to(operator.profile("gpu1", gpu1.address)).open()


def test_a_hashed_entry_that_changed_is_refused(gpu1: Box, operator: Operator) -> None:
    salt = os.urandom(20)
    name = hmac.new(salt, gpu1.address.encode(), hashlib.sha1).digest()
    shown = "|1|" + "|".join(base64.b64encode(part).decode() for part in (salt, name))
    other = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes(32)).decode()
    operator.known_hosts.write_text(f"{shown} ssh-ed25519 {other}\n")
    said = refused(operator, operator.profile("gpu1", gpu1.address))
    assert f"changed: {operator.known_hosts}:1 " in said


def test_a_revoked_key_is_refused_though_it_is_known(gpu1: Box, operator: Operator) -> None:
    operator.knows((gpu1.address, gpu1.host))
    with operator.known_hosts.open("a") as file:
        file.write(f"@revoked * {gpu1.host.host_key()}\n")
    said = refused(operator, operator.profile("gpu1", gpu1.address))
    assert f"is revoked by {operator.known_hosts}:3" in said


def chain_config() -> str:
    return (
        "Host target\nHostName 10.77.13.2\nProxyJump first,ops@10.77.12.2\n"
        "Host first\nHostName 10.77.11.2\n"
    )


def test_two_jump_hosts_are_passed(
    behind: tuple[RigHost, RigHost, RigHost], operator: Operator
) -> None:
    first, second, inner = behind
    operator.configure(chain_config())
    operator.knows(("10.77.11.2", first), ("10.77.12.2", second), ("10.77.13.2", inner))
    before = first.logins()
    with operator.connections() as connections:
        hosts = {name: operator.profile(name, "target") for name in ("a", "b")}
        found = each(hosts, lambda host: connections.to(host).run(["hostname"]).out)
    assert found == {"a": "inner\n", "b": "inner\n"}
    assert first.logins() - before == 1  # both hosts share the jump host's connection


def test_an_unknown_key_in_the_middle_of_the_chain_is_refused(
    behind: tuple[RigHost, RigHost, RigHost], operator: Operator
) -> None:
    first, _, inner = behind
    operator.configure(chain_config())
    operator.knows(("10.77.11.2", first), ("10.77.13.2", inner))
    said = refused(operator, operator.profile("t", "target"))
    assert "the host key of ops@10.77.12.2:22 is unknown" in said


def test_a_jump_host_that_cannot_reach_the_next_says_so(
    behind: tuple[RigHost, RigHost, RigHost], operator: Operator
) -> None:
    operator.configure("Host 10.*\nProxyJump first\nHost first\nHostName 10.77.11.2\n")
    operator.knows(("10.77.11.2", behind[0]))
    said = refused(operator, operator.profile("t", "10.77.12.2", "port: 29\n"))
    assert "the jump host ops@10.77.11.2:22 cannot reach 10.77.12.2:29" in said


def test_proxy_jump_none_takes_the_direct_way(gpu1: Box, operator: Operator) -> None:
    operator.configure(f"Host {gpu1.address}\nProxyJump none\nHost *\nProxyJump nowhere\n")
    operator.knows((gpu1.address, gpu1.host))
    with operator.connections() as connections:
        connections.to(operator.profile("gpu1", gpu1.address)).open()


def test_a_proxy_command_carries_the_connection(gpu1: Box, operator: Operator) -> None:
    relay = Path(__file__).parent / "relay.py"
    operator.configure(
        f"Host box\nHostName {gpu1.address}\nProxyCommand python3 {relay} %h %p 2>/dev/null\n"
    )
    operator.knows((gpu1.address, gpu1.host))
    with operator.connections() as connections:
        way = connections.to(operator.profile("box", "box"))
        assert way.run(["hostname"]).out == "gpu1\n"


def test_a_proxy_command_that_fails_is_quoted(gpu1: Box, operator: Operator) -> None:
    operator.configure("Host box\nProxyCommand sh -c 'echo no ticket >&2; exit 1'\n")
    said = refused(operator, operator.profile("box", "box"))
    assert "ProxyCommand to ops@box:22 failed: no ticket" in said


def test_a_key_that_is_not_authorised(gpu1: Box, operator: Operator, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    operator.knows((gpu1.address, gpu1.host))
    (operator.home / ".ssh/config").write_text(f"Host *\nUser ops\nIdentityFile {other}\n")
    said = refused(operator, operator.profile("gpu1", gpu1.address))
    assert f"took none of the keys ({other})" in said


def test_a_key_with_a_passphrase_is_named(gpu1: Box, operator: Operator, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "word", "-f", locked], check=True)
    operator.knows((gpu1.address, gpu1.host))
    (operator.home / ".ssh/config").write_text(f"Host *\nUser ops\nIdentityFile {locked}\n")
    said = refused(operator, operator.profile("gpu1", gpu1.address))
    assert f"{locked}: has a passphrase, so `ssh-add` it" in said


def test_the_agent_of_the_configuration_is_asked(gpu1: Box, operator: Operator) -> None:
    socket_path = operator.home / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket_path)], stdout=subprocess.DEVNULL)
    try:
        while not socket_path.exists():
            time.sleep(0.02)
        environment = {**os.environ, "SSH_AUTH_SOCK": str(socket_path)}
        subprocess.run(["ssh-add", "-q", operator.key], env=environment, check=True)
        operator.knows((gpu1.address, gpu1.host))
        (operator.home / ".ssh/config").write_text(f"Host *\nUser ops\nIdentityAgent {socket_path}")
        with operator.connections() as connections:
            connections.to(operator.profile("gpu1", gpu1.address)).open()
        (operator.home / ".ssh/config").write_text("Host *\nUser ops\nIdentityAgent none\n")
        with operator.connections(environment) as connections, pytest.raises(HostUnreachable):
            connections.to(operator.profile("gpu1", gpu1.address)).open()
    finally:
        agent.terminate()
        agent.wait()


def test_the_profiles_user_and_port_come_first(gpu1: Box, operator: Operator) -> None:
    gpu1.host.restart_sshd("Port 2222\n")
    operator.configure("Host *\nUser nobody\nPort 22\n")
    operator.knows((f"[{gpu1.address}]:2222", gpu1.host))
    host = operator.profile("gpu1", gpu1.address, "user: ops\nport: 2222\n")
    with operator.connections() as connections:
        assert connections.to(host).run(["whoami"]).out == "ops\n"


def test_a_name_that_does_not_resolve(rig: Rig, operator: Operator) -> None:
    said = refused(operator, operator.profile("x", "no-such-host.invalid"))
    assert "the name no-such-host.invalid does not resolve" in said


def test_a_port_that_refuses(gpu1: Box, operator: Operator) -> None:
    said = refused(operator, operator.profile("gpu1", gpu1.address, "port: 29\n"))
    assert f"{gpu1.address} refuses connections to port 29" in said


def test_a_host_that_is_down_before_a_command(rig: Rig, gpu1: Box, operator: Operator) -> None:
    rig.plug(gpu1.cable, up=False)
    said = refused(operator, operator.profile("gpu1", gpu1.address))
    assert "no network for 10.77.1.2" in said or "did not answer within" in said


def test_a_host_that_does_not_answer(rig: Rig, gpu1: Box, operator: Operator) -> None:
    said = refused(operator, operator.profile("gpu1", "10.77.1.9"))
    assert "did not answer within 3 s" in said or "there is no way to 10.77.1.9" in said


def test_what_listens_is_no_ssh_server(rig: Rig, operator: Operator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            stream, _ = server.accept()
            with stream:
                stream.sendall(b"HTTP/1.1 400 Bad Request\r\n" + b"x: y\r\n" * 100)
                stream.recv(100)

        threading.Thread(target=answer, daemon=True).start()
        said = refused(operator, operator.profile("x", "127.0.0.1", f"port: {port}\n"))
    assert f"127.0.0.1:{port} is no SSH server" in said


def test_a_link_cut_during_a_command(rig: Rig, gpu1: Box, operator: Operator) -> None:
    host = operator.profile("gpu1", gpu1.address)
    operator.knows((gpu1.address, gpu1.host))
    with operator.connections() as connections:
        way = connections.to(host)
        way.open()
        timer = threading.Timer(0.5, lambda: subprocess.run(
            ["ip", "link", "set", gpu1.cable, "down"], check=True))  # fmt: skip
        timer.start()
        begin = time.monotonic()
        with pytest.raises(HostUnreachable, match="was cut while `sleep` ran"):
            way.run(["sleep", "30"])
        assert time.monotonic() - begin < 20
        timer.join()
        rig.plug(gpu1.cable, up=True)
        assert way.run(["echo", "back"]).out == "back\n"


def test_a_power_cut_behind_a_jump_host_is_noticed(
    rig: Rig, behind: tuple[RigHost, RigHost, RigHost], operator: Operator
) -> None:
    """No packet of ours is lost: only the keep-alives inside the tunnel can tell."""
    first, second, inner = behind
    operator.configure(chain_config())
    operator.knows(("10.77.11.2", first), ("10.77.12.2", second), ("10.77.13.2", inner))
    with operator.connections() as connections:
        way = connections.to(operator.profile("t", "target"))
        way.open()
        inner.run("ip", "link", "set", "eth0", "down")
        try:
            with pytest.raises(HostUnreachable, match=r"10\.77\.13\.2:22 was cut before"):
                way.run(["sleep", "30"])
        finally:
            inner.run("ip", "link", "set", "eth0", "up")


def test_a_server_that_is_busy_with_logins_is_tried_again(gpu1: Box, operator: Operator) -> None:
    gpu1.host.restart_sshd("MaxStartups 1:100:1\n")
    host = operator.profile("gpu1", gpu1.address)
    operator.knows((gpu1.address, gpu1.host))
    with socket.create_connection((gpu1.address, 22)) as hog:
        hog.recv(10)
        threading.Timer(1.0, hog.close).start()
        with operator.connections() as connections:
            assert connections.to(host).run(["echo", "in"]).out == "in\n"


def test_a_server_that_stays_too_busy_is_said_to_be(gpu1: Box, operator: Operator) -> None:
    gpu1.host.restart_sshd("MaxStartups 1:100:1\n")
    operator.knows((gpu1.address, gpu1.host))
    with socket.create_connection((gpu1.address, 22)) as hog:
        hog.recv(10)
        said = refused(operator, operator.profile("gpu1", gpu1.address))
    assert "hung up before its greeting, 5 times" in said
    assert "MaxStartups" in said


def test_one_host_that_is_down_does_not_hide_the_others(gpu1: Box, operator: Operator) -> None:
    operator.knows((gpu1.address, gpu1.host))
    hosts = {
        "up": operator.profile("up", gpu1.address),
        "down": operator.profile("down", gpu1.address, "port: 29\n"),
    }
    with operator.connections() as connections:
        found = each(hosts, lambda host: connections.to(host).run(["hostname"]).out)
    assert found["up"] == "gpu1\n"
    assert isinstance(found["down"], HostUnreachable)
