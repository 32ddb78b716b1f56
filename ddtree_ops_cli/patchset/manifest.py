"""What a patch set is: `patches/sglang-VERSION/manifest.yaml`, its patches and the new modules.

The manifest's prose is written by hand and its hashes by `tools/refresh_manifest.py`; whatever
does not match its hash is refused here, before anything is done to a target.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from unidiff.patch import PatchedFile

from ..bundled import bundled
from ..errors import PatchMismatch
from .hunks import applied, parse

_FOLDER = "sglang-"
_REFRESH = "run tools/refresh_manifest.py"
_PATH = re.compile(r"sglang(/[\w-]+(\.[\w-]+)*)+")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _inside_sglang(path: str) -> str:
    if not _PATH.fullmatch(path):
        raise ValueError("a path under sglang/ is expected")
    return path


def _until(text: str) -> str:
    if not text.startswith("until "):
        raise ValueError("say when the patch can be dropped: `until ...`")
    return text


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
SglangPath = Annotated[str, AfterValidator(_inside_sglang)]
ModulePath = Annotated[str, Field(pattern=r"^([\w-]+/)*[\w-]+\.py$")]
Sentence = Annotated[str, Field(min_length=1)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Change(_Model):
    """SHA-256 of a file before and after one patch."""

    before: Sha256
    after: Sha256


class Patch(_Model):
    file: Annotated[str, Field(pattern=r"^[\w.-]+\.patch$")]
    purpose: Sentence
    upstream: Sentence
    """The change upstream that does, or would do, the same."""
    drop: Annotated[str, AfterValidator(_until)]
    sha256: Sha256
    files: dict[SglangPath, Change]


class Modules(_Model):
    """New modules: `source` beside the manifest's folder, `target` in the installed SGLang."""

    source: Annotated[str, Field(pattern=r"^[\w-]+$")]
    target: SglangPath
    files: dict[ModulePath, Sha256]


class Manifest(_Model):
    format: Literal[1]
    sglang: str
    patches: tuple[Patch, ...]
    modules: Modules
    set_hash: Sha256

    @property
    def changes(self) -> dict[str, tuple[str, ...]]:
        """Each patched file with its hashes: the original, after each patch, the last."""
        found: dict[str, tuple[str, ...]] = {}
        for patch in self.patches:
            for path, change in patch.files.items():
                found[path] = (*found.get(path, (change.before,)), change.after)
        return found

    @property
    def additions(self) -> dict[str, str]:
        """Each new file, by its path in the target, with its hash."""
        return {f"{self.modules.target}/{name}": sha for name, sha in self.modules.files.items()}


def set_hash_of(
    version: str, changes: Mapping[str, tuple[str, ...]], new: Mapping[str, str]
) -> str:
    """SHA-256 that stands for the patched code: equal sets of files before and after, equal hash.

    How the set is cut into patches, and its prose, do not count.
    """
    lines = [f"sglang {version}"]
    lines += sorted(
        [f"{path} {hashes[0]} {hashes[-1]}" for path, hashes in changes.items()]
        + [f"{path} - {sha}" for path, sha in new.items()]
    )
    return sha256("".join(f"{line}\n" for line in lines).encode())


@dataclass(frozen=True)
class PatchSet:
    """A manifest with what its patches do (by patch, then by changed file), and its modules (by
    their path in the target)."""

    manifest: Manifest
    diffs: Mapping[str, Mapping[str, PatchedFile]]
    modules: Mapping[str, bytes]

    @property
    def set_hash(self) -> str:
        return self.manifest.set_hash

    @property
    def paths(self) -> tuple[str, ...]:
        """All files that the set changes or adds, relative to site-packages."""
        return (*self.manifest.changes, *self.manifest.additions)

    @classmethod
    def load(cls, version: str, patches: Path | None = None) -> Self:
        """The set for this version of SGLang, every file of it checked by its hash.

        `patches` is the folder that holds `sglang-VERSION/` [default: the bundled one].
        PatchMismatch: no set for this version (the known ones are named), or a broken set.
        """
        root = bundled("patches") if patches is None else patches
        if version not in known_versions(root):
            raise PatchMismatch(f"no patch set for SGLang {version}", mend=f"known: {known(root)}")
        folder = root / f"{_FOLDER}{version}"
        manifest = _read(folder / "manifest.yaml", version)
        source = root / manifest.modules.source
        diffs = {}
        for patch in manifest.patches:
            text = _load(folder / patch.file, patch.sha256)
            diffs[patch.file] = parse(text, where=str(folder / patch.file))
            if diffs[patch.file].keys() != patch.files.keys():
                raise PatchMismatch(
                    "changes other files than the manifest says",
                    where=str(folder / patch.file),
                    mend=_REFRESH,
                )
        modules = {
            f"{manifest.modules.target}/{name}": _load(source / name, sha)
            for name, sha in manifest.modules.files.items()
        }
        _refuse_unlisted(folder, "*.patch", set(diffs))
        _refuse_unlisted(source, "**/*.py", set(manifest.modules.files))
        return cls(manifest, diffs, modules)

    def contents(self, original: Callable[[str], bytes]) -> dict[str, bytes]:
        """Every file that the set changes or adds, as it will be, by its path.

        `original(path)` gives the bytes of a file of the unpatched SGLang. Raises as `content`.
        """
        changed = {path: self.content(path, original(path)) for path in self.manifest.changes}
        return {**changed, **self.modules}

    def content(self, path: str, original: bytes) -> bytes:
        """One changed file after every patch, its hash checked before and after each.

        PatchMismatch names the patch and the line that do not fit.
        """
        now = original
        for patch in self.manifest.patches:
            change = patch.files.get(path)
            if change is None:
                continue
            if sha256(now) != change.before:
                raise PatchMismatch(f"is not the file that {patch.file} changes", where=path)
            now = applied(self.diffs[patch.file][path], now, where=patch.file)
            if sha256(now) != change.after:
                raise PatchMismatch(f"{path} does not get the manifest's hash", where=patch.file)
        return now


def known_versions(patches: Path) -> list[str]:
    """The versions of SGLang that a folder of patches has a set for."""
    found = [file.parent.name for file in patches.glob(f"{_FOLDER}*/manifest.yaml")]
    return sorted(name.removeprefix(_FOLDER) for name in found)


def known(patches: Path) -> str:
    return ", ".join(known_versions(patches)) or "none"


def _read(file: Path, version: str) -> Manifest:
    try:
        document: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        manifest = Manifest.model_validate(document)
    except yaml.YAMLError as error:
        raise PatchMismatch(" ".join(str(error).split()), where=str(file)) from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the document"
        raise PatchMismatch(f"{key}: {first['msg']}", where=str(file)) from error
    if manifest.sglang != version:
        raise PatchMismatch(f"is for SGLang {manifest.sglang}", where=str(file))
    latest: dict[str, str] = {}
    for patch in manifest.patches:
        for path, change in patch.files.items():
            if latest.get(path, change.before) != change.before:
                raise PatchMismatch(
                    f"{patch.file}: {path} is not as an earlier patch leaves it",
                    where=str(file),
                    mend=_REFRESH,
                )
            latest[path] = change.after
    if manifest.set_hash != set_hash_of(version, manifest.changes, manifest.additions):
        raise PatchMismatch("set_hash is not that of its files", where=str(file), mend=_REFRESH)
    return manifest


def _load(file: Path, expected: str) -> bytes:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise PatchMismatch(f"cannot be read: {error.strerror}", where=str(file)) from error
    if sha256(content) != expected:
        raise PatchMismatch("is not as the manifest says", where=str(file), mend=_REFRESH)
    return content


def _refuse_unlisted(folder: Path, pattern: str, listed: set[str]) -> None:
    there = {file.relative_to(folder).as_posix() for file in folder.glob(pattern)}
    for name in sorted(there - listed):
        raise PatchMismatch(
            "the manifest does not list it", where=str(folder / name), mend=_REFRESH
        )
