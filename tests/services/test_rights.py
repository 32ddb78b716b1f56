"""Who may read what of the weights."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ddtree_ops_cli.services.rights import User
from ddtree_ops_cli.services.weights import Entry
from tests.services.pair_on_disk import (
    SHARDS,
    found,
    refusal,
    spec,
)


@pytest.mark.parametrize(
    ("user", "mode", "may"),
    [
        (None, 0o600, True),
        ("root", 0o600, True),
        ("0:0", 0o000, True),
        ("1000", 0o604, True),
        ("1000", 0o640, False),
        ("1000:50", 0o640, True),
        ("1000:50", 0o604, False),
        ("7", 0o400, True),
        ("7", 0o044, False),
        ("sglang", 0o600, True),
    ],
)
def test_who_may_read_a_file(user: str | None, mode: int, may: bool) -> None:
    """Owner 7, group 50; a name is known to the image alone, and nothing is claimed of it."""
    entry = Entry("/w/model.safetensors", stat.S_IFREG | mode, 7, 50, 1)
    assert User.named(user).may(entry) == may


def test_a_folder_must_be_entered_too() -> None:
    folder = Entry("/w", stat.S_IFDIR | 0o754, 7, 50, 1)
    assert not User.named("1000").may(folder)
    assert User.named("1000:50").may(folder)


def test_a_file_that_the_containers_user_may_not_read(pair: tuple[Path, Path]) -> None:
    for folder in pair:
        folder.chmod(0o755)
    (pair[1] / "model.safetensors").chmod(0o644)
    (pair[0] / SHARDS[1]).chmod(0o600)
    text = refusal(spec(*pair), user="4321")
    assert f"ct200:{pair[0] / SHARDS[1]}: the container's user 4321 may not read it" in text
    assert "mode 600, owner" in text
    assert f"sudo chmod -R a+rX {pair[0]}" in text
    assert found(spec(*pair), user="0")
