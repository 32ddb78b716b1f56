from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ddtree_ops_cli.cli import app
from tests.conftest import Ddtree
from tests.patchset.sample import (
    ADDED,
    ARGS,
    DIST_INFO,
    PATCHED,
    RECORD,
    SPEC,
    STORE,
    WORKER,
    Sample,
    fingerprint,
    write_patches,
    write_tree,
)

VERBS = ("status", "check", "apply", "revert", "diff")


@pytest.fixture(scope="module")
def patches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_patches(tmp_path_factory.mktemp("set") / "patches")


@pytest.fixture
def sample(tmp_path: Path, patches: Path) -> Sample:
    return Sample(write_tree(tmp_path / "tree"), patches)


def patch(sample: Sample, verb: str, *words: str) -> Result:
    return CliRunner().invoke(
        app, ["patch", verb, str(sample.tree), "--patches", str(sample.patches), *words]
    )


def report(sample: Sample, verb: str, *words: str) -> dict[str, object]:
    result = patch(sample, verb, "--json", *words)
    found: dict[str, object] = json.loads(result.stdout)
    return found


def state(sample: Sample) -> tuple[int, str]:
    result = patch(sample, "status")
    header, row = result.stdout.splitlines()
    assert header.split() == ["sglang", "state", "patch", "set"]
    return result.exit_code, row


def test_apply_status_revert_leave_the_wheel_as_it_was(sample: Sample) -> None:
    before = fingerprint(sample.tree, inodes=True)
    assert state(sample) == (0, "0.5.17  unpatched  -        ")

    applied = patch(sample, "apply")
    assert applied.exit_code == 0
    assert sorted(applied.stdout.split()) == sorted((*PATCHED, *ADDED, RECORD, f"{STORE}/"))
    code, row = state(sample)
    assert code == 0
    version, word, short = row.split()
    assert (version, word) == ("0.5.17", "applied")
    assert f"applied patch set {short} in SGLang 0.5.17 at {sample.tree}\n" in applied.stderr

    assert patch(sample, "revert").exit_code == 0
    assert fingerprint(sample.tree, inodes=True) == before


def test_twice_is_once_and_says_so(sample: Sample) -> None:
    patch(sample, "apply")
    once = fingerprint(sample.tree, inodes=True)
    again = patch(sample, "apply")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "is applied already: nothing to do" in again.stderr
    assert fingerprint(sample.tree, inodes=True) == once

    patch(sample, "revert")
    again = patch(sample, "revert")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "the patch set is not applied: nothing to do" in again.stderr


def test_check_and_dry_runs_change_nothing(sample: Sample) -> None:
    before = fingerprint(sample.tree, inodes=True)
    for words in (("check",), ("apply", "-n"), ("apply", "--dry-run")):
        result = patch(sample, *words)
        assert result.exit_code == 0
        assert "would apply patch set " in result.stderr
        assert sorted(result.stdout.split()) == sorted((*PATCHED, *ADDED, RECORD, f"{STORE}/"))
    assert fingerprint(sample.tree, inodes=True) == before

    patch(sample, "apply")
    before = fingerprint(sample.tree, inodes=True)
    assert " is applied (SGLang 0.5.17" in patch(sample, "check").stderr
    assert "would revert patch set " in patch(sample, "revert", "-n").stderr
    assert fingerprint(sample.tree, inodes=True) == before


def test_json_says_what_was_done(sample: Sample) -> None:
    dry = report(sample, "apply", "-n")
    assert (dry["changed"], dry["would_change"], dry["recovered"]) == (False, True, False)
    done = report(sample, "apply")
    assert done == dry | {"changed": True}
    assert done["site_packages"] == str(sample.tree)

    here = report(sample, "status")
    assert (here["state"], here["clean"], here["sglang"]) == ("applied", True, "0.5.17")
    assert here["applied_patch_set"] == here["known_patch_set"] == done["patch_set"]
    assert {"path": WORKER, "state": "patched"} in here["files"]  # type: ignore[operator]

    assert report(sample, "revert")["patch_set"] == done["patch_set"]
    here = report(sample, "status")
    assert (here["state"], here["applied_patch_set"]) == ("unpatched", None)


def test_diff_can_be_piped_into_patch(sample: Sample, tmp_path: Path) -> None:
    tool = shutil.which("git")
    if tool is None:
        pytest.skip("no git to read the diff")
    result = patch(sample, "diff")
    assert result.exit_code == 0
    other = write_tree(tmp_path / "other")
    command = [tool, "apply", "--whitespace=nowarn", "-"]
    subprocess.run(command, input=result.stdout_bytes, cwd=other, check=True)
    patch(sample, "apply")
    for path in (*PATCHED, *ADDED):
        assert (other / path).read_bytes() == sample.read(path)


def test_diff_as_json(sample: Sample) -> None:
    found = report(sample, "diff")
    assert found["state"] == "unpatched"
    files = found["files"]
    assert isinstance(files, list)
    assert {file["path"]: file["kind"] for file in files} == {
        **dict.fromkeys(PATCHED, "changed"),
        **dict.fromkeys(ADDED, "added"),
    }
    [spec] = [file["diff"] for file in files if file["path"] == SPEC]
    assert '+NAMES = ["DFLASH", "DDTREE"]\n' in spec


def _version(sample: Sample) -> None:
    sample.write(f"{DIST_INFO}/METADATA", b"Name: sglang\nVersion: 0.5.21\n")


def _edits(sample: Sample) -> None:
    for path in (ARGS, WORKER):
        sample.write(path, b"# mine\n")


def _half(sample: Sample) -> None:
    content = sample.read(WORKER)
    patch(sample, "apply")
    sample.write(WORKER, content)


def _interrupted(sample: Sample) -> None:
    patch(sample, "apply")
    (sample.tree / STORE / "applied.json").rename(sample.tree / STORE / "journal.json")


def _gone(sample: Sample) -> None:
    shutil.rmtree(sample.tree / "sglang")


@pytest.mark.parametrize(
    ("spoil", "name", "says"),
    [
        (_version, "other version", "SGLang 0.5.21 has no patch set; known: 0.5.17"),
        (_edits, "foreign edits", f"changed by other hands: {ARGS} (edited), {WORKER} (edited)"),
        (_half, "partial", f"not patched: {WORKER}"),
        (_gone, "not SGLang", "there is no sglang/ in it"),
    ],
)
def test_what_is_not_clean_is_exit_code_8_with_its_reason(
    sample: Sample, spoil: object, name: str, says: str
) -> None:
    assert callable(spoil)
    spoil(sample)
    before = fingerprint(sample.tree, inodes=True)
    code, row = state(sample)
    assert (code, name in row) == (8, True)
    assert says in patch(sample, "status").stderr
    assert report(sample, "status")["state"] == name
    for verb in ("check", "apply"):
        result = patch(sample, verb)
        assert (result.exit_code, result.stdout) == (8, "")
        assert result.stderr.startswith(f"error: {sample.tree}: ")
        assert says in result.stderr
        assert result.stderr.count("\n") == 1
    assert fingerprint(sample.tree, inodes=True) == before


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_an_interrupted_run_is_told_and_recovered(sample: Sample, verb: str) -> None:
    before = fingerprint(sample.tree)
    _interrupted(sample)
    assert state(sample)[0] == 8
    assert "an interrupted run was found and will be undone" in patch(sample, verb, "-n").stderr
    result = patch(sample, verb)
    assert result.exit_code == 0
    assert "an interrupted run was found and undone" in result.stderr
    assert state(sample)[0] == 0
    patch(sample, "revert")
    assert fingerprint(sample.tree) == before


def test_diff_of_foreign_edits_is_exit_code_8(sample: Sample) -> None:
    patch(sample, "apply")
    sample.write(WORKER, sample.read(WORKER) + b"# mine\n")
    result = patch(sample, "diff")
    assert result.exit_code == 8
    assert "\n+# mine\n" in result.stdout
    assert result.stdout.count("+++") == 1


def test_diff_names_an_edit_that_it_cannot_show(sample: Sample) -> None:
    sample.write(WORKER, b"# mine\n")
    result = patch(sample, "diff")
    assert (result.exit_code, result.stdout) == (8, "")
    assert f"{WORKER} is edited, and its original is not at hand to compare" in result.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_a_wrong_target_is_one_line_and_exit_code_2(
    sample: Sample, tmp_path: Path, verb: str
) -> None:
    for python in ("3.11", "3.12"):
        write_tree(tmp_path / f"env/lib/python{python}/site-packages")
    for target, says in (
        (tmp_path / "nowhere", "no such directory"),
        (sample.tree / ARGS, "not a directory"),
        (tmp_path / "env", "SGLang is in several places: "),
    ):
        result = patch(Sample(target, sample.patches), verb)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"error: {target}: {says}" in result.stderr
        assert result.stderr.count("\n") == 1


def test_the_bundled_patches_are_the_default(sample: Sample) -> None:
    result = CliRunner().invoke(app, ["patch", "status", str(sample.tree)])
    assert result.exit_code == 8  # no release has this tree's files


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_explains_its_options(ddtree: Ddtree, verb: str) -> None:
    done = ddtree("patch", verb, "--help")
    assert done.returncode == 0
    options = [row.split() for row in done.stdout.splitlines() if row.startswith("  -")]
    assert len(options) >= 3
    assert all(len(words) > 2 for words in options)


def test_the_command_line_is_read_without_the_library_of_diffs() -> None:
    code = "import sys, ddtree_ops_cli.cli; print('unidiff' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
