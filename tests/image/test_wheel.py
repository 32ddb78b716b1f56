"""Which wheel of SGLang may go into the image."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtree_ops_cli.bundled import bundled
from ddtree_ops_cli.errors import PatchMismatch, UsageError
from ddtree_ops_cli.image import wheel


def test_a_file_that_is_no_published_wheel_is_refused_by_its_hash(tmp_path: Path) -> None:
    file = tmp_path / "sglang-0.5.17-cp312-cp312-manylinux_2_34_x86_64.whl"
    file.write_bytes(b"edited")
    with pytest.raises(PatchMismatch, match=r"not a wheel of SGLang 0\.5\.17 as published"):
        wheel.checked(file)
    with pytest.raises(PatchMismatch):
        wheel.fetched(tmp_path)  # a cache that was meddled with


def test_a_wheel_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        wheel.checked(tmp_path / "none.whl")


def test_the_lock_has_what_sglang_pins_and_nothing_without_a_hash() -> None:
    text = (bundled("docker") / "requirements.txt").read_text()
    versions = wheel.requirements()
    assert (versions["torch"], versions["triton"], versions["sglang-kernel"]) == (
        "2.11.0",
        "3.6.0",
        "0.4.5",
    )
    assert versions["sglang"] == "0.5.17"
    blocks = text.replace("\\\n", "").splitlines()
    assert all("--hash=sha256:" in block for block in blocks if "==" in block)
    assert "://" not in text
    assert len(wheel.known_hashes()) == 8
