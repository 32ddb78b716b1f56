"""Where SGLang is: in a site-packages folder, an unpacked wheel or a virtual environment.

Everything is read from files; no Python of the target runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import DdtreeError, PatchMismatch, UsageError


@dataclass(frozen=True, slots=True)
class Installation:
    site: Path
    """The folder that holds `sglang/` and its `dist-info`."""
    dist_info: Path
    version: str

    def place(self, path: str) -> Path:
        return self.site / path

    def relative(self, place: Path) -> str:
        return place.relative_to(self.site).as_posix()


@dataclass(frozen=True, slots=True)
class NotSglang:
    """A folder without an installed SGLang in it, and what is missing."""

    folder: Path
    reason: str


def locate(target: Path) -> Installation | NotSglang:
    """The SGLang of `target`.

    UsageError: no such directory, or several installations in it. PatchMismatch: two versions
    in one place, or a package folder that is a link to somewhere else. DdtreeError: not readable.
    """
    try:
        return _locate(target)
    except OSError as error:
        raise DdtreeError(
            f"cannot be read: {error.strerror}", where=str(error.filename or target)
        ) from error


def _locate(target: Path) -> Installation | NotSglang:
    if not target.exists():
        raise UsageError("no such directory", where=str(target))
    if not target.is_dir():
        mend = "unpack the wheel and give its folder" if target.suffix == ".whl" else None
        raise UsageError("not a directory", where=str(target), mend=mend)
    found = [site for site in _sites(target) if (site / "sglang").is_dir()]
    if len(found) > 1:
        raise UsageError(
            f"SGLang is in several places: {', '.join(map(str, found))}",
            where=str(target),
            mend="give one of them",
        )
    if not found:
        if target.name == "sglang" and (target / "srt").is_dir():
            reason = f"this is the package itself; give the folder that holds it: {target.parent}"
        else:
            reason = "there is no sglang/ in it"
        return NotSglang(target, reason)
    [site] = found
    if (site / "sglang").is_symlink():
        elsewhere = (site / "sglang").resolve()
        raise PatchMismatch(
            f"sglang is a link to {elsewhere}, which others may use", where=str(site)
        )
    infos = {
        info: version
        for info in sorted(site.glob("sglang-*.dist-info"))
        if (version := _version(info)) is not None
    }
    if len(infos) > 1:
        raise PatchMismatch(
            f"several versions of SGLang are registered: {', '.join(infos.values())}",
            where=str(site),
            mend="reinstall SGLang",
        )
    for info, version in infos.items():
        return Installation(site, info, version)
    return NotSglang(site, "sglang/ has no sglang-VERSION.dist-info beside it: not an installation")


def _sites(target: Path) -> list[Path]:
    if (target / "sglang").exists():
        return [target]
    # Debian's own Python calls it dist-packages; lib64 is often a link to lib.
    inside = [
        site
        for lib in ("lib", "lib64")
        for name in ("site-packages", "dist-packages")
        for site in sorted((target / lib).glob(f"python3*/{name}"))
    ]
    return list({site.resolve(): site for site in reversed(inside)}.values())[::-1]


def _version(dist_info: Path) -> str | None:
    try:
        lines = (dist_info / "METADATA").read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return None  # what an uninstall left behind
    for line in lines:
        name, _, value = line.partition(":")
        if name.lower() == "version":
            return value.strip()
        if not line:
            break
    return None
