from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ddtree_ops_cli.bundled import bundled
from ddtree_ops_cli.errors import DdtreeError, UsageError
from ddtree_ops_cli.profiles.locate import Library
from ddtree_ops_cli.profiles.new_host import NewHost, draft, write


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("DDTREE_PROFILES", raising=False)
    return tmp_path / "config" / "ddtree" / "profiles"


def drafted(
    name: str = "box",
    address: str = "10.0.0.5",
    user: str | None = None,
    port: int | None = None,
    model: str | None = None,
    source: str = "ct200",
) -> NewHost:
    return draft(
        Library.default(),
        name,
        address=address,
        user=user,
        port=port,
        model=model,
        source=source,
    )


def test_the_new_file_is_the_template_with_its_comments_and_the_values(own: Path) -> None:
    new = drafted(user="ops", port=2222, model="lab-pair")
    write(new, force=False)

    assert new.file == own / "hosts" / "box.yaml"
    host = Library.default().host("box")
    assert host.value.address == "10.0.0.5"
    assert (host.value.user, host.value.port, host.value.model) == ("ops", 2222, "lab-pair")
    assert not host.value.template
    template = (bundled("profiles") / "hosts" / "ct200.yaml").read_text().splitlines()
    kept = new.file.read_text().splitlines()
    gone = [line for line in template if line not in kept]
    replaced = ("# ", "#  ", "model:", "description:")
    assert all("template" in line or line.startswith(replaced) for line in gone)
    added = [line for line in kept if line not in template]
    assert added == [
        "description: GPU server, containers over SSH",
        "address: 10.0.0.5",
        "user: ops",
        "port: 2222",
        "model: lab-pair",
    ]


def test_a_value_that_yaml_would_misread_is_quoted() -> None:
    for address in ("on", "1e3", "0x10", "2026-13-45", "null", "fe80::1", "12"):
        write(drafted(name="odd", address=address), force=True)
        assert Library.default().host("odd").value.address == address


def test_an_own_host_can_be_copied() -> None:
    write(drafted(user="ops", port=2222), force=False)

    copy = drafted(name="second", address="10.0.0.6", source="box")

    write(copy, force=False)
    second = Library.default().host("second").value
    assert (second.address, second.user, second.port) == ("10.0.0.6", "ops", 2222)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": "Box"}, "no name of a host"),
        ({"name": "../box"}, "no name of a host"),
        ({"name": "-box"}, "no name of a host"),
        ({"name": ""}, "no name of a host"),
        ({"name": "lab"}, "host 'lab' is this machine"),
        ({"address": ""}, "--address"),
        ({"address": "-oProxyCommand=reboot"}, "--address"),
        ({"address": "box;reboot"}, "--address"),
        ({"address": "$(reboot)"}, "--address"),
        ({"address": "box\nuser: root"}, "--address"),
        ({"address": "box\n"}, "--address"),
        ({"address": "ops@box"}, "--address"),
        ({"address": "box:22"}, "--address"),
        ({"address": "fe80::1%$(reboot)"}, "--address"),
        ({"user": "-l"}, "--user"),
        ({"user": "a b"}, "--user"),
        ({"user": "root`"}, "--user"),
        ({"port": 0}, "--port"),
        ({"port": 65536}, "--port"),
        ({"model": "qwen3.6-27"}, "no model 'qwen3.6-27'; did you mean qwen3.6-27b"),
        ({"model": "a/b"}, "--model"),
        ({"source": "ct20"}, "no host 'ct20'; did you mean ct200"),
        ({"source": "lab"}, "host 'lab' is this machine"),
    ],
    ids=str,
)
def test_a_wrong_value_is_one_line_and_nothing_is_written(
    wrong: dict[str, str], says: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        drafted(**wrong)  # type: ignore[arg-type]

    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_replaced_only_by_force() -> None:
    write(drafted(), force=False)
    other = drafted(address="10.0.0.6")

    with pytest.raises(UsageError, match="exists already; --force replaces it"):
        write(other, force=False)
    assert Library.default().host("box").value.address == "10.0.0.5"

    write(other, force=True)
    assert Library.default().host("box").value.address == "10.0.0.6"


def test_nothing_but_the_file_is_left_behind(own: Path) -> None:
    write(drafted(), force=False)
    with pytest.raises(UsageError):
        write(drafted(), force=False)
    write(drafted(), force=True)

    files = list((own / "hosts").iterdir())
    assert [file.name for file in files] == ["box.yaml"]
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600
    assert files[0].stat().st_nlink == 1


def test_a_place_that_cannot_be_written_is_one_line(own: Path) -> None:
    own.parent.parent.mkdir(parents=True)
    own.parent.write_text("a file where a directory belongs")

    with pytest.raises(DdtreeError, match="cannot be written"):
        write(drafted(), force=False)


def test_a_source_that_cannot_be_edited_by_lines_is_refused(own: Path) -> None:
    (own / "hosts").mkdir(parents=True)
    (own / "hosts" / "flow.yaml").write_text(
        "{description: all on one line, runtime: docker, address: a, model: lab-pair}\n"
    )

    with pytest.raises(DdtreeError):
        drafted(source="flow")
