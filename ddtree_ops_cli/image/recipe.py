"""What is asked of a build, checked before anything is done."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ..bundled import bundled
from ..doctor.portable.catalogue import CHECKS
from ..doctor.portable.checks import BLOCKING
from ..errors import UsageError
from ..profiles import forms
from ..services.container import PROJECT_IMAGE

Packages = Literal["locked", "base"]


@dataclass(frozen=True, slots=True)
class Recipe:
    base: str
    packages: Packages
    cuda_archs: str
    """The GPU to compile for at run time, as CUDA names it: `12.0a`."""
    tag: str
    accepted: tuple[str, ...] = ()
    """Blocking checks that may fail in the image."""

    @property
    def arch(self) -> int:
        """Major x 10 + minor: 120."""
        major, _, minor = self.cuda_archs.rstrip("af").partition(".")
        return int(major) * 10 + int(minor)


def defaults() -> dict[str, str]:
    """What the Dockerfile itself gives to its arguments; the only place where it stands."""
    text = (bundled("docker") / "Dockerfile").read_text(encoding="utf-8")
    return dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))


def recipe_of(
    *,
    base: str | None,
    packages: str,
    cuda_archs: str | None,
    tag: str | None,
    accepted: tuple[str, ...],
) -> Recipe:
    """From the words of the command line; None leaves the default. Raises UsageError."""
    base, cuda_archs = base or defaults()["BASE"], cuda_archs or defaults()["CUDA_ARCHS"]
    for name, image in (("--base", base), ("--tag", tag or PROJECT_IMAGE)):
        if not re.fullmatch(forms.IMAGE, image):
            raise UsageError(f"{name} '{image}' is no image", mend=f"expected {forms.IMAGE_FORM}")
    if packages not in ("locked", "base"):
        raise UsageError(f"--packages is '{packages}'", mend="it is locked or base")
    if not re.fullmatch(r"\d{1,2}\.\d[af]?", cuda_archs):
        raise UsageError(
            f"--archs '{cuda_archs}' is no compute capability", mend="such as 12.0a, 10.0a or 9.0a"
        )
    blocking = {check.id for check in CHECKS if check.severity == BLOCKING}
    if unknown := [check for check in accepted if check not in blocking]:
        raise UsageError(
            f"--accept: there is no blocking check '{unknown[0]}'",
            mend="see `ddtree doctor --list`",
        )
    wanted: Packages = "locked" if packages == "locked" else "base"
    return Recipe(base, wanted, cuda_archs, tag or PROJECT_IMAGE, accepted)
