"""Weights on a host: real folders, read by the real script, in every state that they can be in."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ddtree_ops_cli.errors import DdtreeError
from ddtree_ops_cli.hosts.shell import Completed, ThisMachine
from ddtree_ops_cli.services.preflight import Models, judge_models
from ddtree_ops_cli.services.rights import User
from ddtree_ops_cli.services.spec import ContainerSpec, ServiceSpec
from ddtree_ops_cli.services.weights import Entry, Source, read_weights
from tests.lab.random_pair import write_random_pair

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Counting(ThisMachine):
    """Counts how often the host is asked."""

    rounds = 0

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        self.rounds += 1
        return super().run(argv, **options)


@pytest.fixture(scope="module")
def random_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_random_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture
def pair(random_pair: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Folders of the test's own: a target in two shards with an index, and its drafter."""
    target, drafter = tmp_path / "target", tmp_path / "drafter"
    shutil.copytree(random_pair[0], target)
    shutil.copytree(random_pair[1], drafter)
    tensors = load_file(target / "model.safetensors")
    (target / "model.safetensors").unlink()
    names = sorted(tensors)
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    for shard, half in zip(SHARDS, halves, strict=True):
        save_file({name: tensors[name] for name in half}, target / shard)
        (target / shard).chmod(0o644)
    index = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())},
        "weight_map": {
            name: shard for shard, half in zip(SHARDS, halves, strict=True) for name in half
        },
    }
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    return target, drafter


def spec(target: str | Path, drafter: str | Path | None, **more: Any) -> ServiceSpec:
    values = {
        "target_revision": None, "drafter_revision": None, "block_size": 16, "tree": None,
    } | more  # fmt: skip
    return ServiceSpec(
        host="ct200", service="ddtree", model="pair", gpu=0, bind="127.0.0.1", port=30000,
        served_name="pair", target=str(target), drafter=None if drafter is None else str(drafter),
        algorithm="DFLASH", engine=(), extra_args=(), **values,
    )  # fmt: skip


def container(mounts: tuple[str, ...]) -> ContainerSpec:
    return ContainerSpec(
        image=None, command=("python3",), restart="no", shm_size="16g", ulimits=(), user=None,
        memory=None, env=(), mounts=mounts, kernel_cache="/var/cache/ddtree", gpu_access="auto",
    )  # fmt: skip


def found(wanted: ServiceSpec, *, user: str | None = None, cache: Path | None = None) -> Models:
    hub = str(cache) if cache else None
    sources = [Source("target", wanted.target, wanted.target_revision, hub)]
    if wanted.drafter is not None:
        sources.append(Source("drafter", wanted.drafter, wanted.drafter_revision, hub))
    shell = Counting("ct200")
    facts = read_weights(shell, sources)
    assert shell.rounds == 1
    return judge_models(facts, wanted, "ct200", user)


def refusal(wanted: ServiceSpec, **options: Any) -> str:
    with pytest.raises(DdtreeError) as refused:
        found(wanted, **options)
    text = str(refused.value)
    assert "\n" not in text
    return text


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def cached(hub: Path, place: str, folder: Path, *, revision: str = "main") -> Path:
    """As huggingface_hub lays it out: blobs, links to them in snapshots/COMMIT, refs/REVISION."""
    repository = hub / f"models--{place.replace('/', '--')}"
    snapshot = repository / "snapshots" / COMMIT
    for inner in ("blobs", "refs"):
        (repository / inner).mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (repository / "refs" / revision).write_text(COMMIT)
    for number, file in enumerate(sorted(folder.iterdir())):
        shutil.copy(file, repository / f"blobs/{number}")
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    return repository


def test_a_whole_pair_is_found_with_the_size_that_is_loaded(pair: tuple[Path, Path]) -> None:
    models = found(spec(*pair))
    tensors = {n: t for shard in SHARDS for n, t in load_file(pair[0] / shard).items()}
    assert models.target.parameters == sum(tensor.size for tensor in tensors.values())
    assert models.pair.target_bytes == models.target.parameters * 2, "float32 is served halved"
    assert models.drafter is not None
    assert models.pair.drafter is not None
    assert models.drafter.directory == str(pair[1])


def test_a_target_alone_needs_no_drafter(pair: tuple[Path, Path]) -> None:
    assert found(spec(pair[0], None)).pair.drafter is None


def test_layers_that_the_engine_skips_are_not_counted(pair: tuple[Path, Path]) -> None:
    before = found(spec(pair[0], None)).pair.target_bytes
    extra = {
        "mtp.layers.0.weight": np.ones((8, 8), np.float32),
        "model.visual.patch_embed.weight": np.ones((4, 4), np.float32),
    }
    save_file(extra, pair[0] / "model-00003-of-00003.safetensors")
    index = pair[0] / "model.safetensors.index.json"
    names = json.loads(index.read_text())["weight_map"]
    edit(index, weight_map=names | dict.fromkeys(extra, "model-00003-of-00003.safetensors"))
    assert found(spec(pair[0], None)).pair.target_bytes == before
    edit(pair[0] / "config.json", architectures=["Qwen3_5ForConditionalGeneration"])
    assert found(spec(pair[0], None)).pair.target_bytes > before


def test_a_folder_that_is_not_there_names_what_to_copy_where(tmp_path: Path) -> None:
    text = refusal(spec("/srv/my models/target", None))
    assert "host ct200: the target /srv/my models/target does not exist" in text
    assert "rsync -aL --partial FOLDER/ ct200:'/srv/my models/target/'" in text


def test_both_models_are_named_at_once(tmp_path: Path) -> None:
    text = refusal(spec("org/target", "org/drafter"), cache=tmp_path)
    assert f"HF_HUB_CACHE={tmp_path} hf download org/target" in text
    assert f"HF_HUB_CACHE={tmp_path} hf download org/drafter" in text


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_truncated_shard_is_found(pair: tuple[Path, Path], keep: int) -> None:
    shard = pair[0] / SHARDS[1]
    whole = shard.read_bytes()
    shard.write_bytes(whole[:keep])
    text = refusal(spec(*pair))
    assert f"ct200:{shard}: truncated" in text
    assert "copy this file again" in text
    shard.write_bytes(whole + b"\0")
    assert "too long" in refusal(spec(*pair))


def test_an_index_that_names_a_missing_file(pair: tuple[Path, Path]) -> None:
    (pair[0] / SHARDS[1]).unlink()
    text = refusal(spec(*pair))
    assert f"ct200:{pair[0]}: 1 of 2 weight files are missing: {SHARDS[1]}" in text


def test_an_index_of_another_checkpoint(pair: tuple[Path, Path]) -> None:
    index = pair[0] / "model.safetensors.index.json"
    names = json.loads(index.read_text())["weight_map"]
    edit(index, weight_map=names | {"model.other.weight": SHARDS[0]})
    text = refusal(spec(*pair))
    assert "1 of" in text
    assert "model.other.weight" in text
    for bad in ({}, [], None):
        edit(index, weight_map=bad)
        assert "weight_map is missing" in refusal(spec(*pair))


def test_weights_without_an_index_or_any_file(pair: tuple[Path, Path]) -> None:
    (pair[1] / "model.safetensors").unlink()
    assert "1 of 1 weight files are missing: model.safetensors" in refusal(spec(*pair))


@pytest.mark.parametrize("name", [SHARDS[0], "config.json"])
def test_lfs_pointers_instead_of_files(pair: tuple[Path, Path], name: str) -> None:
    (pair[0] / name).write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 3996452408\n"
    )
    text = refusal(spec(*pair))
    assert f"ct200:{pair[0] / name}: this is a Git LFS pointer" in text
    assert "git lfs pull" in text


@pytest.mark.parametrize(
    "content", [b"\x10\0\0\0\0\0\0\0not a json text.", b"\x02\0\0\0\0\0\0\0[]", b"\xff" * 64]
)
def test_what_is_no_safetensors_file(pair: tuple[Path, Path], content: bytes) -> None:
    (pair[1] / "model.safetensors").write_bytes(content)
    text = refusal(spec(*pair))
    assert f"ct200:{pair[1]}/model.safetensors: " in text
    assert "no safetensors file" in text or "end within the header" in text


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"vocab_size": 1}'])
def test_a_config_that_is_none(pair: tuple[Path, Path], text: str) -> None:
    (pair[1] / "config.json").write_text(text)
    assert f"ct200:{pair[1]}/config.json: " in refusal(spec(*pair))
    (pair[1] / "config.json").unlink()
    assert "the drafter has no readable config.json" in refusal(spec(*pair))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"vocab_size": 999}, "a vocabulary of 999, the target 320"),
        ({"hidden_size": 32}, "a hidden size of 32, the target 64"),
        ({"num_target_layers": 40}, "a target of as many layers as 40, the target 4"),
        ({"dflash_config": {"target_layer_ids": [1, 4]}}, "target_layer_ids [1, 4], the target 4"),
        ({"dflash_config": {"target_layer_ids": []}}, "target_layer_ids is []"),
        ({"dflash_config": {}}, "target_layer_ids is null"),
    ],
)
def test_a_drafter_of_another_target(
    pair: tuple[Path, Path], changes: dict[str, Any], what: str
) -> None:
    edit(pair[1] / "config.json", **changes)
    text = refusal(spec(*pair))
    assert f"ct200:{pair[1]}/config.json: " in text
    assert what in text


def test_a_block_size_that_the_profile_does_not_have(pair: tuple[Path, Path]) -> None:
    text = refusal(spec(*pair, block_size=8))
    assert "the drafter's block_size is 16, the model profile's 8" in text
    assert "set block_size: 16" in text


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
