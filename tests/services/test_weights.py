"""Weights on a host: real folders, read by the real script, behind whatever they lie."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ddtree_ops_cli.errors import DdtreeError
from ddtree_ops_cli.hosts.shell import Completed, ThisMachine
from ddtree_ops_cli.services.preflight import judge_models
from ddtree_ops_cli.services.weights import Source, read_weights
from tests.services.pair_on_disk import (
    COMMIT,
    SHARDS,
    cached,
    container,
    found,
    refusal,
    spec,
)


def test_a_cache_is_read_by_branch_and_by_commit(pair: tuple[Path, Path], tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    cached(hub, "org/target", pair[0])
    cached(hub, "org/drafter", pair[1], revision="v1.0")
    for target_revision in (None, "main", COMMIT):
        wanted = spec(
            "org/target", "org/drafter", target_revision=target_revision, drafter_revision="v1.0"
        )
        models = found(wanted, cache=hub)
        assert models.target.commit == COMMIT
        assert models.target.directory.endswith(f"models--org--target/snapshots/{COMMIT}")


def test_the_cache_is_where_the_environment_of_the_login_has_it(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(tmp_path / "a/hub", "org/target", pair[0])
    cached(tmp_path / "b", "org/target", pair[0])
    cached(tmp_path / "home/.cache/huggingface/hub", "org/target", pair[0])
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    wanted = spec("org/target", None)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert "/home/.cache/huggingface/hub/" in found(wanted).target.directory
    monkeypatch.setenv("HF_HOME", str(tmp_path / "a"))
    assert "/a/hub/" in found(wanted).target.directory
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "b"))
    assert "/b/models--" in found(wanted).target.directory


def test_an_empty_cache(tmp_path: Path) -> None:
    text = refusal(spec("org/target", None, target_revision="abc"), cache=tmp_path / "hub")
    assert f"host ct200: the target org/target is not in the Hugging Face cache {tmp_path}" in text
    assert f"HF_HUB_CACHE={tmp_path}/hub hf download org/target --revision abc" in text


def test_a_revision_that_is_absent(pair: tuple[Path, Path], tmp_path: Path) -> None:
    cached(tmp_path, "org/target", pair[0])
    text = refusal(spec("org/target", None, target_revision="v2"), cache=tmp_path)
    assert "has no revision v2" in text
    assert f"there is: main, {COMMIT}" in text


def test_a_download_that_was_broken_off(pair: tuple[Path, Path], tmp_path: Path) -> None:
    repository = cached(tmp_path, "org/target", pair[0])
    (repository / "snapshots" / COMMIT / SHARDS[1]).unlink()
    (repository / "blobs/abc.incomplete").write_bytes(b"half")
    text = refusal(spec("org/target", None), cache=tmp_path)
    assert "1 of 2 weight files are missing" in text
    assert "1 downloads in the cache are unfinished" in text


def test_links_that_lead_nowhere_or_in_a_circle(pair: tuple[Path, Path]) -> None:
    shard = pair[0] / SHARDS[0]
    shard.unlink()
    shard.symlink_to("gone")
    assert f"ct200:{shard}: cannot be read: No such file or directory" in refusal(spec(*pair))
    shard.unlink()
    shard.symlink_to(SHARDS[0])
    assert f"ct200:{shard}: cannot be read: Too many levels of symbolic links" in refusal(
        spec(*pair)
    )


def test_a_folder_that_is_a_circle_of_links(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    text = refusal(spec(tmp_path / "a", None))
    assert "cannot be listed: Too many levels of symbolic links" in text


def test_a_file_instead_of_a_folder(pair: tuple[Path, Path]) -> None:
    assert "is a file, not a folder" in refusal(spec(pair[0] / "config.json", None))


def test_a_link_out_of_the_folder_is_not_seen_by_the_container(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    shard = pair[0] / SHARDS[0]
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    text = refusal(spec(*pair))
    assert f"ct200:{shard}: this link leads out of its folder" in text
    assert f"{tmp_path}/elsewhere" in text
    for mounts, seen in ((f"{tmp_path}:{tmp_path}:ro",), True), ((f"{tmp_path}:/w",), False):
        wanted = spec(*pair, container=container(mounts))
        if seen:
            assert found(wanted)
        else:
            assert "leads out of its folder" in refusal(wanted)


def test_a_folder_behind_a_link_is_as_good_as_the_folder(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "current").symlink_to(pair[0])
    assert found(spec(tmp_path / "current", pair[1])).target.tensors


def test_names_that_a_shell_would_take_apart(pair: tuple[Path, Path], tmp_path: Path) -> None:
    odd = tmp_path / "$(touch pwned) 'a' \"b\" *"
    shutil.copytree(pair[0], odd)
    (odd / "no tensors; here.txt").write_text("")
    assert found(spec(odd, pair[1])).target.directory == str(odd)
    assert not Path("pwned").exists()


class Nobody(ThisMachine):
    """A login without rights."""

    def run(self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: str = "") -> Completed:
        done = subprocess.run(
            list(argv), input=stdin, capture_output=True, text=True, user=65534, cwd="/"
        )
        return Completed(tuple(argv), done.returncode, done.stdout, done.stderr, 0.0, None)


@pytest.fixture
def open_folder(pair: tuple[Path, Path]) -> Iterator[Path]:
    """A target outside pytest's folders, which only their owner may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(shutil.copytree(pair[0], Path(folder) / "target"))


def test_what_the_login_may_not_read(open_folder: Path) -> None:
    shell = Nobody("ct200") if os.geteuid() == 0 else ThisMachine("ct200")

    def told() -> str:
        facts = read_weights(shell, [Source("target", str(open_folder))])
        with pytest.raises(DdtreeError) as refused:
            judge_models(facts, spec(open_folder, None), "ct200", None)
        return str(refused.value)

    open_folder.chmod(0o755)
    (open_folder / SHARDS[1]).chmod(0o000)
    assert f"{SHARDS[1]}: your login may not read it" in told()
    open_folder.chmod(0o000)
    assert f"ct200:{open_folder}: the target cannot be listed: permission denied" in told()
    assert f"sudo chmod -R a+rX {open_folder}" in told()
    open_folder.chmod(0o755)


def test_a_shell_that_runs_no_script_is_told() -> None:
    class Forced(ThisMachine):
        def run(self, argv: Sequence[str], **options: Any) -> Completed:
            return Completed(tuple(argv), 0, "This account is\x1b[2J closed.\n", "", 0.0, None)

    with pytest.raises(DdtreeError, match="cannot look at the weights: This account is"):
        read_weights(Forced("ct200"), [Source("target", "/w")])
