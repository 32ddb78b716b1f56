"""`ddtree build` and `ddtree image`, where no host has to be reached."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Ddtree


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("build", "lab"), 2, "host lab: it runs no containers"),
        (("build", "nowhere"), 2, "no host 'nowhere'"),
        (("build", "ct200"), 2, "host 'ct200' is a template without an address"),
        (("build", "lab", "--packages", "some"), 2, "--packages is 'some'; it is locked or base"),
        (("build", "lab", "--base", "-x"), 2, "--base '-x' is no image"),
        (("build", "lab", "--tag", "A B"), 2, "--tag 'A B' is no image"),
        (("build", "lab", "--archs", "sm_120"), 2, "--archs 'sm_120' is no compute capability"),
        (("build", "lab", "--accept", "disk"), 2, "there is no blocking check 'disk'"),
        (("image", "list", "lab"), 2, "host lab: it runs no containers"),
        (("image", "prune", "lab", "--cache"), 2, "host lab: it runs no containers"),
        (("image", "copy", "lab", "lab"), 2, "host lab: it runs no containers"),
        (("image", "diff", "nowhere", "lab"), 2, "no host 'nowhere'"),
    ],
)
def test_a_mistake_is_one_line(
    ddtree: Ddtree, words: tuple[str, ...], code: int, says: str
) -> None:
    done = ddtree(*words)
    assert done.returncode == code
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_two_locks_are_compared_without_a_host(ddtree: Ddtree, tmp_path: Path) -> None:
    first = {"format": 1, "image": "sha256:a", "labels": {}, "libraries": {},
             "packages": {"torch": "2.11.0"}}  # fmt: skip
    for name, lock in (("a", first), ("b", {**first, "image": "sha256:b", "packages": {}})):
        (tmp_path / name).write_text(json.dumps(lock))
    done = ddtree("image", "diff", str(tmp_path / "a"), str(tmp_path / "b"))
    assert done.returncode == 8
    assert ["package", "torch", "2.11.0", "-"] in [
        line.split() for line in done.stdout.splitlines()
    ]
    same = ddtree("image", "diff", str(tmp_path / "a"), str(tmp_path / "a"))
    assert (same.returncode, same.stdout) == (0, "")
    assert "have the same image: sha256:a" in same.stderr


def test_a_file_that_is_no_lock_is_exit_code_3(ddtree: Ddtree, tmp_path: Path) -> None:
    file = tmp_path / "odd.json"
    file.write_text("{}")
    done = ddtree("image", "diff", str(file), str(file))
    assert done.returncode == 3
    assert f"{file}: is no lock of an image" in done.stderr
