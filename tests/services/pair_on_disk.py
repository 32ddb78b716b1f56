"""A target in two shards with an index, and its drafter, as folders that a host has."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from ddtree_ops_cli.errors import DdtreeError
from ddtree_ops_cli.hosts.shell import Completed, ThisMachine
from ddtree_ops_cli.services.preflight import Models, judge_models
from ddtree_ops_cli.services.spec import ContainerSpec, ServiceSpec
from ddtree_ops_cli.services.weights import Source, read_weights

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Counting(ThisMachine):
    """Counts how often the host is asked."""

    rounds = 0

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        self.rounds += 1
        return super().run(argv, **options)


def write_pair(made: tuple[Path, Path], folder: Path) -> tuple[Path, Path]:
    """Copies of a random pair, the target in shards."""
    target, drafter = folder / "target", folder / "drafter"
    shutil.copytree(made[0], target)
    shutil.copytree(made[1], drafter)
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
