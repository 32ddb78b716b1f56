from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ddtree_ops_cli.cli import app


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's own hosts; the current directory is an empty one."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("DDTREE_PROFILES", raising=False)
    return tmp_path / "config" / "ddtree" / "profiles" / "hosts"


def ddtree(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_list_shows_the_lab_and_the_template() -> None:
    result = ddtree("hosts", "list")

    assert result.exit_code == 0
    header, ct200, lab = (line.split() for line in result.stdout.splitlines())
    assert header == ["name", "address", "runtime", "template", "file"]
    assert ct200[:4] == ["ct200", "-", "docker", "template"]
    assert lab[:5] == ["lab", "this", "machine", "process", "-"]


def test_an_added_host_takes_the_templates_place(own: Path) -> None:
    result = ddtree("hosts", "add", "ct200", "--address", "10.0.0.5", "--user", "ops")

    assert result.exit_code == 0
    assert result.stdout == f"{own / 'ct200.yaml'}\n"
    listed = json.loads(ddtree("hosts", "list", "--json").stdout)
    assert [(host["name"], host["address"], host["template"]) for host in listed] == [
        ("ct200", "10.0.0.5", False),
        ("lab", None, False),
    ]
    assert ddtree("profile", "check").exit_code == 0


def test_adding_twice_needs_force(own: Path) -> None:
    ddtree("hosts", "add", "box", "--address", "a")

    again = ddtree("hosts", "add", "box", "--address", "b")
    assert again.exit_code == 2
    assert "exists already; --force replaces it" in again.stderr
    assert "address: a" in (own / "box.yaml").read_text()

    assert ddtree("hosts", "add", "box", "--address", "b", "--force").exit_code == 0
    assert "address: b" in (own / "box.yaml").read_text()


@pytest.mark.parametrize("flag", ["-n", "--dry-run"])
def test_a_dry_run_shows_the_file_and_writes_nothing(flag: str, own: Path) -> None:
    result = ddtree("hosts", "add", "box", "--address", "a", flag)

    assert result.exit_code == 0
    assert "\naddress: a\n" in result.stdout
    assert f"would write {own / 'box.yaml'}" in result.stderr
    assert not own.exists()


def test_json_says_what_was_written_where(own: Path) -> None:
    dry = json.loads(ddtree("hosts", "add", "box", "--address", "a", "-n", "--json").stdout)
    wet = json.loads(ddtree("hosts", "add", "box", "--address", "a", "--json").stdout)

    assert dry | {"written": True} == wet
    assert wet["file"] == str(own / "box.yaml")
    assert wet["text"] == (own / "box.yaml").read_text()


def test_a_wrong_address_is_one_line_and_exit_code_2(own: Path) -> None:
    result = ddtree("hosts", "add", "box", "--address=-oProxyCommand=reboot")

    assert result.exit_code == 2
    assert result.stderr.startswith("error: --address is the text '-oProxyCommand=reboot'")
    assert not own.exists()


def test_a_new_host_that_is_hidden_says_so() -> None:
    Path("profiles/hosts").mkdir(parents=True)
    Path("profiles/hosts/box.yaml").write_text(
        "description: x\nruntime: docker\naddress: a\nmodel: lab-pair\n"
    )

    result = ddtree("hosts", "add", "box", "--address", "b")

    assert result.exit_code == 0
    assert "profiles/hosts/box.yaml comes first on the search path" in result.stderr


def test_an_invalid_host_does_not_hide_the_others(own: Path) -> None:
    own.mkdir(parents=True)
    (own / "broken.yaml").write_text("description: x\nruntime: dokcer\nmodel: lab-pair\n")

    result = ddtree("hosts", "list")

    assert result.exit_code == 0
    rows = [line.split()[:4] for line in result.stdout.splitlines()]
    assert ["broken", "-", "invalid", "-"] in rows
    assert "broken.yaml:2:10: runtime is the text 'dokcer'; did you mean docker" in result.stderr


def test_facts_of_the_lab_are_this_machines() -> None:
    result = ddtree("hosts", "facts", "lab", "--json")

    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["facts"]["system"]["kernel"].startswith("Linux ")
    assert set(found["unknown"]) <= {"engine", "gpus"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("facts", "nowhere"), "no host 'nowhere'"),
        (("facts", "ct200"), "host 'ct200' is a template without an address"),
        (("trust", "lab"), "host lab is this machine"),
        (("trust", "lab", "--fingerprint", "MD5:00"), "'MD5:00' is no fingerprint"),
    ],
)
def test_what_facts_and_trust_cannot_do_is_one_line_and_exit_code_2(
    words: tuple[str, ...], says: str
) -> None:
    result = ddtree("hosts", *words)

    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["facts", "trust"])
def test_a_host_that_refuses_is_one_line_and_exit_code_4(command: str) -> None:
    ddtree("hosts", "add", "box", "--address", "127.0.0.1", "--port", "1")

    result = ddtree("hosts", command, "box")

    assert result.exit_code == 4
    assert result.stderr.startswith("error: host box: 127.0.0.1 refuses connections to port 1;")
    assert result.stderr.count("\n") == 1


def test_an_ssh_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    ddtree("hosts", "add", "box", "--address", "127.0.0.1")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host *\n\nMatch moon full\n")

    result = ddtree("hosts", "facts", "box")

    assert result.exit_code == 3
    assert f"{tmp_path}/.ssh/config:3: Match moon is not supported" in result.stderr
