"""The doctor as one script: the same source, in a bare Python."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ddtree_ops_cli.doctor import portable
from ddtree_ops_cli.doctor.export import script, write
from ddtree_ops_cli.doctor.portable.catalogue import CHECKS
from ddtree_ops_cli.doctor.visit import diagnosed
from ddtree_ops_cli.errors import DdtreeError

SOURCES = sorted(Path(portable.__file__).parent.glob("*.py"))


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    file = tmp_path / "doctor.py"
    write(file, script({"algorithm": "DDTREE", "attention_backend": "fa3"}, version="1"))
    return file


def run(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """With nothing of this project or its dependencies on the path."""
    argv = [sys.executable, "-I", "-S", str(file), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, cwd=file.parent)


def test_it_lists_the_same_checks(exported: Path) -> None:
    listed = run(exported, "--list").stdout.splitlines()
    assert [line.split()[1] for line in listed] == [check.id for check in CHECKS]


def test_it_judges_what_it_finds_as_ddtree_itself_does(exported: Path) -> None:
    done = run(exported, "--json")
    document = json.loads(done.stdout)
    findings = {f["id"]: (f["state"], tuple(f["found"])) for f in document["findings"]}
    here = diagnosed("here", document["facts"])
    assert findings == {f.check.id: (f.state, f.found) for f in here.findings}
    assert findings["attention-backend"][0] == "failed"
    assert done.returncode == 8


def test_people_get_what_it_means_and_the_mend(exported: Path) -> None:
    said = run(exported).stdout
    assert "attention-backend: attention_backend is fa3; a tree needs triton" in said
    assert "mend:  `engine: {attention_backend: triton}`" in said


def test_equal_inputs_give_equal_text() -> None:
    first = script({"b": 1, "a": 2}, version="1")
    assert first == script({"a": 2, "b": 1}, version="1")
    assert first != script({"a": 2}, version="1")


def test_an_intent_cannot_leave_the_text_that_it_stands_in(tmp_path: Path) -> None:
    file = tmp_path / "doctor.py"
    hostile = {"attention_backend": '"""); raise SystemExit(99) #', "algorithm": "DDTREE"}
    write(file, script(hostile, version="1"))
    document = json.loads(run(file, "--json").stdout)
    assert document["facts"]["intent"] == hostile


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.stem)
def test_its_source_is_python_3_8_and_imports_the_standard_library_alone(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, "a relative import may not leave the folder"
            names = [] if node.level else [node.module or ""]
        else:
            continue
        assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_an_older_python_is_told_so_in_one_line(exported: Path) -> None:
    old = f"import sys; sys.version_info = (3, 7, 9); exec(open({str(exported)!r}).read())"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", old], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("ddtree doctor needs Python 3.8 or newer; this is ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("module", ["json", "importlib.abc", "argparse", "tempfile"])
def test_a_python_without_a_part_of_its_library_is_told_so_in_one_line(
    exported: Path, module: str
) -> None:
    less = f"import sys; sys.modules[{module!r}] = None; exec(open({str(exported)!r}).read())"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", less], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("ddtree doctor: this Python lacks a part of its standard library")
    assert done.stderr.count("\n") == 1


def test_its_frame_is_understood_by_pythons_that_it_then_refuses(exported: Path) -> None:
    ast.parse(exported.read_text(), feature_version=(3, 4))


def test_a_place_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(DdtreeError, match="cannot be written"):
        write(tmp_path / "none/doctor.py", "text")
    folder = tmp_path / "taken"
    folder.mkdir()
    with pytest.raises(DdtreeError, match="cannot be written"):
        write(folder, "text")
    assert list(tmp_path.iterdir()) == [folder]
