"""~/.ssh/config and a profile to a way to the host."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from ddtree_ops_cli.errors import HostUnreachable, ProfileError
from ddtree_ops_cli.hosts.ssh_config import Hop, SshConfig
from ddtree_ops_cli.profiles.schema import HostProfile


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def route(
    home: Path,
    text: str,
    address: str = "box",
    *,
    system: str = "",
    environment: dict[str, str] | None = None,
    **own: object,
) -> Hop:
    (home / ".ssh").mkdir(exist_ok=True)
    (home / ".ssh/config").write_text(text)
    (home / "system").write_text(system)
    profile = HostProfile.model_validate(
        {"description": "x", "runtime": "docker", "model": "m", "address": address, **own}
    )
    return SshConfig(home, environment or {}, home / "system").route(profile)


def test_without_a_configuration(tmp_path: Path) -> None:
    hop = route(tmp_path, "", environment={"SSH_AUTH_SOCK": "/run/agent"})
    assert (hop.address, hop.port, hop.user) == ("box", 22, getpass.getuser())
    assert hop.identity_files[0] == tmp_path / ".ssh/id_ed25519"
    assert hop.agent == Path("/run/agent")
    assert hop.trust_file == tmp_path / ".ssh/known_hosts"
    assert Path("/etc/ssh/ssh_known_hosts") in hop.known_hosts
    assert hop.via is hop.proxy_command is None
    assert not hop.hash_known_hosts


def test_the_options_that_are_honoured(tmp_path: Path) -> None:
    hop = route(
        tmp_path,
        "Host box\n HostName 10.0.0.1\n User ops\n Port 2222\n IdentityFile ~/.ssh/%h-%r\n"
        " IdentityFile=/k\n IdentitiesOnly yes\n IdentityAgent ~/agent\n HostKeyAlias it\n"
        " UserKnownHostsFile ~/one /two\n GlobalKnownHostsFile none\n HashKnownHosts yes\n"
        " ConnectTimeout 3\n ServerAliveInterval 7\n ServerAliveCountMax 2\n",
    )
    assert (hop.address, hop.user, hop.port, hop.known_as) == ("10.0.0.1", "ops", 2222, "it")
    assert hop.identity_files == (tmp_path / ".ssh/10.0.0.1-ops", Path("/k"))
    assert hop.identities_only
    assert hop.agent == tmp_path / "agent"
    assert hop.known_hosts == (tmp_path / "one", Path("/two"))
    assert hop.trust_file == tmp_path / "one"
    assert hop.hash_known_hosts
    assert (hop.connect_timeout_s, hop.alive_interval_s, hop.alive_count) == (3, 7, 2)


def test_what_the_profile_says_comes_first_and_only_that(tmp_path: Path) -> None:
    text = "Host box\n User a\n Port 2222\n ProxyCommand via %r %h %p\n"
    assert route(tmp_path, text, user="b").title == "b@box:2222"
    assert route(tmp_path, text, port=22).title == "a@box:22"
    assert route(tmp_path, text, user="b", port=7).proxy_command == "via b box 7"


@pytest.mark.parametrize(
    ("port", "name", "known_as"),
    [
        (None, "Box", "box"),
        (22, "box", "box"),
        (2222, "box", "[box]:2222"),
        (2222, "fe80::1", "[fe80::1]:2222"),
    ],
)
def test_the_name_in_known_hosts(
    tmp_path: Path, port: int | None, name: str, known_as: str
) -> None:
    assert route(tmp_path, "", name, port=port).known_as == known_as


def test_the_users_file_comes_before_the_systems(tmp_path: Path) -> None:
    hop = route(tmp_path, "Host box\nUser a\n", system="Host *\nUser s\nPort 9\n")
    assert (hop.user, hop.port) == ("a", 9)


@pytest.mark.parametrize(
    ("value", "agent"),
    [
        ("none", None),
        ("SSH_AUTH_SOCK", "/run/a"),
        ("$OTHER", "/run/b"),
        ("${OTHER}/x", "/run/b/x"),
        ("%d/s", "HOME/s"),
    ],
)
def test_the_agent(tmp_path: Path, value: str, agent: str | None) -> None:
    environment = {"SSH_AUTH_SOCK": "/run/a", "OTHER": "/run/b"}
    hop = route(tmp_path, f"IdentityAgent {value}\n", environment=environment)
    assert hop.agent == (agent and Path(agent.replace("HOME", str(tmp_path))))


def test_a_chain_of_jump_hosts_each_by_its_own_configuration(tmp_path: Path) -> None:
    hop = route(
        tmp_path,
        "Host box\nProxyJump first,it@second:29\nHost first\nHostName 10.0.0.1\nUser f\n"
        "Host second\nProxyJump elsewhere\nHost first second\nIdentityFile /k\n",
    )
    assert [one.title for one in hop.chain[:2]] == ["f@10.0.0.1:22", "it@second:29"]
    assert hop.chain[0].identity_files == (Path("/k"),)


def test_the_first_jump_host_may_have_one_of_its_own(tmp_path: Path) -> None:
    hop = route(tmp_path, "Host box\nProxyJump a\nHost a\nProxyJump b\n")
    assert [one.address for one in hop.chain] == ["b", "a", "box"]


@pytest.mark.parametrize(
    ("text", "proxy", "jumps"),
    [
        ("ProxyJump none\nProxyCommand x\n", None, 1),
        ("ProxyCommand none\nProxyJump a\n", None, 1),
        ("ProxyCommand x\nProxyJump a\n", "x", 1),
        ("ProxyJump a\nProxyCommand x\n", None, 2),
        ("ProxyJump ssh://u@[fe80::1]:29\n", None, 2),
    ],
)
def test_of_jump_and_command_the_first_counts(
    tmp_path: Path, text: str, proxy: str | None, jumps: int
) -> None:
    hop = route(tmp_path, f"Host box\n{text}")
    assert (hop.proxy_command, len(hop.chain)) == (proxy, jumps)


def test_a_circle_of_jump_hosts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostUnreachable, match="circle: box > a > b > a"):
        route(tmp_path, "Host box\nProxyJump a\nHost a\nProxyJump b\nHost b\nProxyJump a\n")


def test_included_files_take_the_place_of_the_line(tmp_path: Path) -> None:
    (tmp_path / ".ssh/conf.d").mkdir(parents=True)
    (tmp_path / ".ssh/conf.d/1").write_text("Host other\nPort 1\n")
    (tmp_path / ".ssh/conf.d/2").write_text("Host box\nPort 2\n")
    text = "Host box\nInclude conf.d/* ~/absent\nUser a\nHost *\nPort 3\n"
    assert route(tmp_path, text).title == "a@box:2"


def test_a_file_that_includes_itself_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="includes itself"):
        route(tmp_path, "Include config\n")


@pytest.mark.parametrize(
    "text", ["Match host a frob x\n", "Port many\n", "ProxyJump a b\n", "just-one-word\n"]
)
def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(ProfileError, match=r"\.ssh/config"):
        route(tmp_path, text)


def test_sections_by_match_are_honoured(tmp_path: Path) -> None:
    text = "Match host box\nPort 3\nMatch !host box\nUser a\nMatch all\nUser b\n"
    assert route(tmp_path, text).title == "b@box:3"
