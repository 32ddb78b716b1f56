"""The build context: equal inputs, equal bytes."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from ddtree_ops_cli.errors import PatchMismatch
from ddtree_ops_cli.image.context import assembled, write_tar
from tests.patchset.sample import FILES, SPEC, write_patches

INTENT = {"algorithm": "DDTREE"}


@pytest.fixture(scope="module")
def patches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_patches(tmp_path_factory.mktemp("sample") / "patches")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    file = tmp_path / "sglang-0.5.17-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return file


def sent(wheel: Path, patches: Path, version: str = "1") -> tuple[str, bytes]:
    out = io.BytesIO()
    with assembled(wheel, INTENT, version=version, patches=patches) as context:
        write_tar(context, out)
        return context.digest, out.getvalue()


def test_equal_inputs_give_equal_bytes_whatever_the_time_and_the_umask(
    wheel: Path, patches: Path
) -> None:
    first = sent(wheel, patches)
    time.sleep(1.1)  # gzip and tar count in seconds
    before = os.umask(0o077)
    try:
        assert sent(wheel, patches) == first
    finally:
        os.umask(before)


def test_another_version_of_the_doctor_gives_another_digest(wheel: Path, patches: Path) -> None:
    assert sent(wheel, patches, "1")[0] != sent(wheel, patches, "2")[0]


def test_sglang_is_in_it_patched_with_its_journal(wheel: Path, patches: Path) -> None:
    _, packed = sent(wheel, patches)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as tar:
        members = {member.name: member for member in tar.getmembers()}
        spec = tar.extractfile(f"site/{SPEC}")
        assert spec is not None
        assert b'"DDTREE"' in spec.read()
    assert "site/sglang-0.5.17.dist-info/ddtree-patch/applied.json" in members
    assert {"Dockerfile", "requirements.txt", "entrypoint.sh", "health.py", "doctor.py"} <= set(
        members
    )
    assert members["entrypoint.sh"].mode == 0o755
    assert {m.mode for m in members.values()} == {0o644, 0o755}
    assert {(m.mtime, m.uid, m.uname) for m in members.values()} == {(0, 0, "")}


def test_a_wheel_that_reaches_out_of_its_folder_is_refused(tmp_path: Path, patches: Path) -> None:
    hostile = tmp_path / "hostile.whl"
    with zipfile.ZipFile(hostile, "w") as archive:
        archive.writestr("../escaped.py", "x = 1\n")
    with pytest.raises(PatchMismatch, match=r"holds the name \.\./escaped\.py"):
        sent(hostile, patches)
    assert not list(tmp_path.rglob("escaped.py"))
