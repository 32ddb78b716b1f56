"""Whether a host's weights are there, whole, readable and made for each other. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DdtreeError
from .rights import User
from .shapes import DrafterShape, Pair, TargetShape, drafter_shape, target_shape
from .tensors import COPY_AGAIN, NOT_THE_FILE, Tensor, loaded_bytes, tensors_of
from .weights import Entry, WeightsFacts

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Weights:
    """A model that an engine can load."""

    directory: str
    commit: str | None
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    """By name; empty where only config.json and the index were read."""
    declared_bytes: int | None = None
    """Of all tensors, by the index."""

    @property
    def config_file(self) -> str:
        return f"{self.directory}/config.json"

    def loaded_bytes(self, *, text_only: bool) -> int | None:
        """As SGLang holds them; None where nothing says it."""
        if not self.tensors:
            return self.declared_bytes
        halve = self.config.get("dtype", self.config.get("torch_dtype")) == "float32"
        return loaded_bytes(self.tensors, text_only=text_only, halve=halve)

    @property
    def parameters(self) -> int:
        """Half the bytes of the index where only that was read, as bfloat16 has them."""
        if not self.tensors:
            return (self.declared_bytes or 0) // 2
        return sum(tensor.count for tensor in self.tensors.values())


def judge(facts: WeightsFacts, *, host: str, user: User, mounted: Sequence[str] = ()) -> Weights:
    """Raises DdtreeError with the first thing that keeps an engine from loading them.

    `mounted` are folders of the host that the container sees besides the weights' own.
    """
    _require_there(facts, host)
    config = _document(facts, "config.json", facts.config, host)
    files = {entry.name: entry for entry in facts.files}
    names = _weight_files(facts, host)
    _require_present(facts, names, files, host)
    tensors: dict[str, Tensor] = {}
    for name in names:
        tensors |= tensors_of(
            files[name], facts.headers.get(name), where=_on(host, files[name].path)
        )
    _require_indexed(facts, tensors, host)
    _require_readable(facts, user, host)
    _require_seen(facts, mounted, host)
    commit = facts.cache.commit if facts.cache else None
    return Weights(facts.directory, commit, config, tensors)


def describe(facts: WeightsFacts, *, host: str) -> Weights:
    """What config.json and the index say, whether or not the weights are there.

    Raises DdtreeError where these two are not.
    """
    _require_there(facts, host)
    config = _document(facts, "config.json", facts.config, host)
    commit = facts.cache.commit if facts.cache else None
    metadata = None
    if facts.index is not None:
        metadata = _document(facts, INDEX, facts.index, host).get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return Weights(facts.directory, commit, config, {}, total if type(total) is int else None)


def judge_pair(
    target: Weights, drafter: Weights | None, *, host: str, block_size: int | None
) -> Pair:
    """The shapes of both; raises DdtreeError where the drafter was made for another target."""
    shape = target_shape(target.config, where=_on(host, target.config_file))
    target_bytes = target.loaded_bytes(text_only=shape.architecture.endswith("ForCausalLM"))
    if target_bytes is None:
        raise DdtreeError(
            f"nothing says how large the weights are: there is no {INDEX}",
            where=_on(host, target.directory),
            mend="copy it there, or the weights",
        )
    if drafter is None:
        return Pair(shape, target_bytes, None, 0)
    where = _on(host, drafter.config_file)
    its = drafter_shape(drafter.config, where=where)
    for what, drafters, targets in _differences(its, shape):
        raise DdtreeError(
            f"the drafter has {what} {drafters}, the target {targets} ({target.config_file})",
            where=where,
            mend="name the drafter that was trained for this target in the model profile",
        )
    if block_size is not None and its.block_size not in (None, block_size):
        raise DdtreeError(
            f"the drafter's block_size is {its.block_size}, the model profile's {block_size}",
            where=where,
            mend=f"set block_size: {its.block_size} in the model profile",
        )
    drafter_bytes = drafter.loaded_bytes(text_only=False)
    # In bfloat16, as the published ones are.
    return Pair(shape, target_bytes, its, drafter_bytes or 2 * its.parameters)


def _differences(drafter: DrafterShape, target: TargetShape) -> Iterator[tuple[str, Any, Any]]:
    if drafter.vocabulary != target.vocabulary:
        yield "a vocabulary of", drafter.vocabulary, target.vocabulary
    if drafter.hidden != target.hidden:
        yield "a hidden size of", drafter.hidden, target.hidden
    if drafter.target_layers not in (None, target.layers):
        yield "a target of as many layers as", drafter.target_layers, target.layers
    if max(drafter.target_layer_ids) >= target.layers:
        ids = list(drafter.target_layer_ids)
        yield "target_layer_ids", ids, f"{target.layers} layers, counted from 0"


def _require_there(facts: WeightsFacts, host: str) -> None:
    source, cache = facts.source, facts.cache
    if cache is not None and not cache.present:
        raise DdtreeError(
            f"the {source.role} {source.place} is not in the Hugging Face cache {cache.hub}",
            where=f"host {host}",
            mend=_fetch(facts, host),
        )
    if cache is not None and cache.commit is None:
        known = ", ".join(cache.revisions) or "none"
        raise DdtreeError(
            f"the {source.role} {source.place} has no revision {source.revision or 'main'} in "
            f"{cache.hub}; there is: {known}",
            where=f"host {host}",
            mend=_fetch(facts, host),
        )
    own = next((e for e in facts.directories if e.path == facts.directory), None)
    if own is None:
        raise DdtreeError(
            f"the {source.role} {source.place} does not exist",
            where=f"host {host}",
            mend=_fetch(facts, host),
        )
    if own.problem is None and not own.is_directory:
        raise DdtreeError(
            f"the {source.role} is a file, not a folder with config.json in it",
            where=_on(host, own.path),
            mend="name the folder in the model profile",
        )
    if own.problem is not None or not facts.accessible:
        raise DdtreeError(
            f"the {source.role} cannot be listed: {own.problem or 'permission denied'}",
            where=_on(host, own.path),
            mend="your login must be able to read it, as must the container's user: "
            f"sudo chmod -R a+rX {shlex.quote(own.path)}",
        )


def _weight_files(facts: WeightsFacts, host: str) -> list[str]:
    """Those of the index or, without one, every safetensors file, as SGLang loads them."""
    index = next((entry for entry in facts.files if entry.name == INDEX), None)
    if index is None:
        return sorted(facts.headers) or ["model.safetensors"]
    found = _document(facts, INDEX, facts.index, host).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise DdtreeError(
            "weight_map is missing",
            where=_on(host, f"{facts.directory}/{INDEX}"),
            mend=COPY_AGAIN,
        )
    return sorted({str(name) for name in found.values()})


def _require_present(
    facts: WeightsFacts, names: Sequence[str], files: Mapping[str, Entry], host: str
) -> None:
    for entry in facts.files:
        if entry.problem is not None:
            raise DdtreeError(
                f"cannot be read: {entry.problem}", where=_on(host, entry.path), mend=COPY_AGAIN
            )
    missing = [name for name in names if name not in files]
    if missing:
        unfinished = facts.cache.unfinished if facts.cache else ()
        told = f"; {len(unfinished)} downloads in the cache are unfinished" if unfinished else ""
        raise DdtreeError(
            f"{len(missing)} of {len(names)} weight files are missing: {_some(missing)}{told}",
            where=_on(host, facts.directory),
            mend=_fetch(facts, host),
        )


def _require_indexed(facts: WeightsFacts, tensors: Mapping[str, Tensor], host: str) -> None:
    if facts.index is None:
        return
    indexed = json.loads(facts.index)["weight_map"]
    if absent := [name for name in indexed if name not in tensors]:
        raise DdtreeError(
            f"{len(absent)} of {len(indexed)} tensors of the index are in no file: {_some(absent)}",
            where=_on(host, f"{facts.directory}/{INDEX}"),
            mend="index and weights are of two checkpoints: copy the whole again",
        )


def _require_readable(facts: WeightsFacts, user: User, host: str) -> None:
    for entry in (*facts.directories, *facts.files):
        if not user.may(entry):
            raise DdtreeError(
                f"the container's user {user.uid} may not read it (mode {entry.mode & 0o7777:o}, "
                f"owner {entry.uid}, group {entry.gid})",
                where=_on(host, entry.path),
                mend=_readable(facts.cache.hub if facts.cache else facts.directory),
            )


def _require_seen(facts: WeightsFacts, mounted: Sequence[str], host: str) -> None:
    """A container sees the folder itself, and nothing that lies beside it."""
    if facts.cache is not None:
        return
    seen = tuple(f"{folder.rstrip('/')}/" for folder in (facts.resolved, *mounted))
    for link, goal in facts.links.items():
        if link != facts.directory and not goal.startswith(seen):
            raise DdtreeError(
                f"this link leads out of its folder, to {goal or 'nothing'}, which the container "
                "does not see",
                where=_on(host, link),
                mend="copy the file itself there, as `rsync -L` and `cp -L` do; a Hugging Face "
                "cache is named by its id, not by a path",
            )


def _document(facts: WeightsFacts, name: str, text: str | None, host: str) -> dict[str, Any]:
    where = _on(host, f"{facts.directory}/{name}")
    if text is None:
        raise DdtreeError(
            f"the {facts.source.role} has no readable {name}", where=where, mend=_fetch(facts, host)
        )
    if text.startswith("version https://git-lfs"):
        raise DdtreeError(
            "this is a Git LFS pointer, not the file",
            where=where,
            mend=NOT_THE_FILE,
        )
    try:
        found = json.loads(text)
    except ValueError as error:
        raise DdtreeError(f"not JSON: {error}", where=where, mend=COPY_AGAIN) from error
    if not isinstance(found, dict):
        raise DdtreeError("not a JSON object", where=where, mend=COPY_AGAIN)
    return found


def _fetch(facts: WeightsFacts, host: str) -> str:
    """What the operator runs to get them there."""
    source = facts.source
    if facts.cache is None:
        place = shlex.quote(source.place.rstrip("/") + "/")
        return f"from where they are: rsync -aL --partial FOLDER/ {host}:{place}"
    revision = f" --revision {source.revision}" if source.revision else ""
    hub = shlex.quote(facts.cache.hub)
    return f"on the host: HF_HUB_CACHE={hub} hf download {source.place}{revision}"


def _readable(path: str) -> str:
    return f"on the host: sudo chmod -R a+rX {shlex.quote(path)}"


def _on(host: str, path: str) -> str:
    return f"{host}:{path}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (", ..." if len(names) > 2 else "")


def together(errors: Sequence[DdtreeError]) -> DdtreeError:
    """One error for what is wrong with each model, so that all is mended in one go."""
    if len(errors) == 1:
        return errors[0]
    places = [error.where for error in errors]
    same = len(set(places)) == 1
    return DdtreeError(
        "; ".join(each.what if same else f"{each.where}: {each.what}" for each in errors),
        where=places[0] if same else None,
        mend="; ".join(dict.fromkeys(each.mend for each in errors if each.mend)),
    )
