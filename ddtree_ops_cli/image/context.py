"""The build context: the same inputs give the same bytes, and so the same digest."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..bundled import bundled
from ..doctor.export import script
from ..patchset.apply import apply
from .wheel import unpack

_OWN = ("Dockerfile", "requirements.txt", "entrypoint.sh", "health.py")
_RUNS = ("entrypoint.sh",)


@dataclass(frozen=True, slots=True)
class File:
    name: str
    """Relative, with slashes."""
    mode: int
    """0o644 or 0o755, whatever the umask was here."""
    size: int
    sha256: str
    path: Path


@dataclass(frozen=True, slots=True)
class Context:
    """What is sent to the host's Docker."""

    files: tuple[File, ...]
    """By name."""
    patch_set: str
    """Hash of the patch set that was applied to SGLang."""

    @property
    def size(self) -> int:
        """Bytes, before they are compressed."""
        return sum(file.size for file in self.files)

    @property
    def digest(self) -> str:
        """Over names, modes and contents."""
        lines = (f"{file.name} {file.mode:o} {file.sha256}\n" for file in self.files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()


@contextmanager
def assembled(
    wheel: Path, intent: Mapping[str, Any], *, version: str, patches: Path | None = None
) -> Iterator[Context]:
    """The context with SGLang unpacked and patched, in a folder that is gone afterwards.

    `intent` is what the image's own doctor checks for; the patch set's hash is added. Raises as
    `patchset.apply` does.
    """
    with tempfile.TemporaryDirectory(prefix="ddtree-build-") as place:
        root = Path(place)
        site = root / "site"
        site.mkdir()
        unpack(wheel, site)
        patch_set = apply(site, patches).set_hash
        assert patch_set is not None, "apply names the set that it applied"
        for name in _OWN:
            (root / name).write_bytes((bundled("docker") / name).read_bytes())
        meant = {**intent, "container": True, "patch_set": patch_set}
        (root / "doctor.py").write_text(script(meant, version=version), encoding="utf-8")
        yield Context(tuple(_files(root)), patch_set)


def write_tar(context: Context, out: IO[bytes]) -> None:
    """A gzipped tar without times, owners or anything else of this machine."""
    with (
        gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for file in context.files:
            head = tarfile.TarInfo(file.name)
            head.size, head.mode = file.size, file.mode
            with file.path.open("rb") as content:
                tar.addfile(head, content)


def archive_of(name: str, content: bytes) -> bytes:
    """A tar with one file that everybody may read."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        head = tarfile.TarInfo(name)
        head.size, head.mode = len(content), 0o644
        tar.addfile(head, io.BytesIO(content))
    return out.getvalue()


def _files(root: Path) -> Iterator[File]:
    found = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    for path in sorted(found, key=lambda path: path.relative_to(root).as_posix()):
        name = path.relative_to(root).as_posix()
        content = path.read_bytes()
        runs = name in _RUNS or (name.startswith("site/") and path.stat().st_mode & 0o111)
        yield File(
            name=name,
            mode=0o755 if runs else 0o644,
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            path=path,
        )
