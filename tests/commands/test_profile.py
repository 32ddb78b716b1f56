from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ddtree_ops_cli.bundled import bundled
from ddtree_ops_cli.cli import app


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("DDTREE_PROFILES", raising=False)
    return tmp_path / "config" / "ddtree" / "profiles"


def ddtree(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def write(file: str, text: str) -> Path:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_list_names_every_profile_and_marks_the_hidden() -> None:
    write("profiles/services/ddtree.yaml", "extends: ddtree\ndescription: mine\n")
    write("profiles/services/typo.yaml", "extends: ddtre\n")

    result = ddtree("profile", "list")

    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    own, packaged = "profiles/services/ddtree.yaml", str(bundled("profiles"))
    assert ["services", "ddtree", own, "mine"] in lines
    hidden = f"{packaged}/services/ddtree.yaml"
    assert ["services", "ddtree", hidden, "hidden", "by", own] in lines
    assert "invalid: see `ddtree profile check`" in result.stdout


def test_list_of_one_kind_as_json() -> None:
    result = ddtree("profile", "list", "model", "--json")

    listed = json.loads(result.stdout)
    assert [entry["name"] for entry in listed] == ["lab-pair", "qwen3.6-27b"]
    assert {entry["kind"] for entry in listed} == {"models"}
    assert all(entry["valid"] and entry["hidden_by"] is None for entry in listed)


def test_show_says_where_each_value_came_from() -> None:
    write("profiles/services/wide.yaml", "extends: ddtree\nspeculative:\n  budget: 64\n")

    result = ddtree("profile", "show", "wide")

    rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()}
    assert rows["speculative.budget"] == ["64", "profiles/services/wide.yaml:3"]
    assert rows["speculative.mode"][1].startswith(str(bundled("profiles")))
    assert rows["speculative.chain_seed"] == ["-", "default"]


def test_show_as_json_and_explained() -> None:
    found = json.loads(ddtree("profile", "show", "hosts", "lab", "--json").stdout)

    gpus = next(value for value in found["values"] if value["key"] == "gpus")
    assert gpus["value"] == 4
    assert gpus["constraint"] == "a whole number (places) from 1 to 64"
    assert gpus["meaning"] in ddtree("profile", "show", "lab", "--explain").stdout


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["show", "labb"], 2, "no profile 'labb'; did you mean lab"),
        (["show", "host", "plain"], 2, "no host 'plain'; known: ct200, lab"),
        (["show", "hots", "lab"], 2, "no kind of profile 'hots'; did you mean hosts"),
        (["show", "a", "b", "c"], 2, "one profile at a time"),
        (["list", "things"], 2, "no kind of profile 'things'"),
        (["check", "nowhere.yaml"], 3, "nowhere.yaml:1:1: no such file"),
        (["check", "--kind", "x", "."], 2, "no kind of profile 'x'"),
    ],
    ids=str,
)
def test_a_slip_is_one_line_and_its_exit_code(words: list[str], code: int, says: str) -> None:
    result = ddtree("profile", *words)

    assert result.exit_code == code
    assert says in result.output
    assert "Traceback" not in result.output


def test_check_of_the_whole_search_path() -> None:
    good = ddtree("profile", "check")
    assert (good.exit_code, good.stdout) == (0, "")
    assert "7 profiles checked, 0 invalid" in good.stderr

    write("profiles/hosts/box.yaml", "description: x\nruntime: docker\naddres: a\nmodel: nope\n")
    write("profiles/services/odd.yml", "")
    write("profiles/models/Odd.yaml", "")
    bad = ddtree("profile", "check")

    assert bad.exit_code == 3
    assert "profiles/hosts/box.yaml:3:1: unknown key 'addres'; did you mean address" in bad.stdout
    assert "profiles/services/odd.yml:1:1: not read under this name" in bad.stdout
    assert "profiles/models/Odd.yaml:1:1: 'Odd' is no name of a profile" in bad.stdout
    assert "10 profiles checked, 3 invalid" in bad.stderr


def test_check_follows_the_names_of_other_profiles() -> None:
    write(
        "profiles/hosts/box.yaml",
        "description: x\nruntime: docker\naddress: a\nmodel: lab-pare\nservice: dtree\n",
    )
    write("profiles/services/s.yaml", "description: x\nalgorithm: none\nmodel: nothing\n")

    result = ddtree("profile", "check")

    assert result.exit_code == 3
    assert result.stdout.splitlines() == [
        "profiles/hosts/box.yaml:4:1: model: no model 'lab-pare'; did you mean lab-pair",
        "profiles/hosts/box.yaml:5:1: service: no service 'dtree'; did you mean ddtree",
        "profiles/services/s.yaml:3:1: model: no model 'nothing'; known: lab-pair, qwen3.6-27b",
    ]


def test_check_of_files_and_folders_off_the_search_path(tmp_path: Path) -> None:
    file = str(write("else/services/new.yaml", "extends: base\nspeculative: {budget: 0}\n"))
    write("else/services/base.yaml", "extends: ddtree\ndescription: base\n")
    loose = str(write("loose.yaml", "description: x\nalgorithm: none\n"))

    assert ddtree("profile", "check", file).stdout == (
        f"{file}:2:23: speculative.budget is 0; expected a whole number (nodes), at least 1\n"
    )
    for folder in ("else", "else/services"):
        result = ddtree("profile", "check", folder)
        assert "new.yaml:2:23: speculative.budget is 0" in result.stdout
        assert "2 profiles checked, 1 invalid" in result.stderr
    assert "unknown kind" in ddtree("profile", "check", loose).stdout
    assert ddtree("profile", "check", loose, "--kind", "service").exit_code == 0


def test_check_as_json() -> None:
    write("profiles/services/zero.yaml", "extends: ddtree\nspeculative: {budget: 0}\n")

    result = ddtree("profile", "check", "--json")

    assert result.exit_code == 3
    found = json.loads(result.stdout)
    assert (found["checked"], found["invalid"]) == (8, 1)
    (problem,) = found["problems"]
    assert (problem["line"], problem["column"]) == (2, 23)
    assert problem["file"].endswith("profiles/services/zero.yaml")
    assert problem["mend"] == "expected a whole number (nodes), at least 1"


def test_the_global_option_comes_first_on_the_search_path(tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    write(str(extra / "services" / "plain.yaml"), "extends: plain\ndescription: from the option\n")

    result = ddtree("--profiles", str(extra), "profile", "show", "plain")

    assert "from the option" in result.stdout
    assert ddtree("--profiles", str(tmp_path / "gone"), "profile", "list").exit_code == 2
