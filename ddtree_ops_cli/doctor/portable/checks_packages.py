"""Checks of installed packages: versions against pins and lock, the patch set."""

from __future__ import annotations

from collections.abc import Iterator

from .checks import ADVISORY, BLOCKING, Check, Facts, NotChecked
from .packages import canonical

_NAMED = 4
"""Of a long list, this many are named."""


def _pinned(facts: Facts) -> Iterator[str]:
    pins, versions = facts.section("pins"), facts.get("packages", "versions")
    for name, wanted in pins["exact"].items():
        version = versions.get(name)
        # A local version, as of torch 2.11.0+cu130, satisfies the pin.
        if version is not None and version.partition("+")[0] != wanted:
            yield f"SGLang {pins['sglang']} pins {name} {wanted}; {version} is installed"


def _lock(facts: Facts) -> Iterator[str]:
    lock, versions = facts.wanted("lock"), facts.get("packages", "versions")
    for name, wanted in sorted(lock.items()):
        version = versions.get(canonical(name))
        if version != wanted:
            yield f"the lock has {name} {wanted}; {version or 'nothing'} is installed"


def _twice(facts: Facts) -> Iterator[str]:
    for name, versions in facts.get("packages", "twice").items():
        yield f"{name} is there as {' and '.join(versions)}"


def _patch_set(facts: Facts) -> Iterator[str]:
    patches = facts.section("patch_set")
    wanted = facts.intent.get("patch_set")
    if patches["changed"]:
        named = ", ".join(patches["changed"][:_NAMED])
        yield f"{len(patches['changed'])} files are not as the patch set made them: {named}"
    if wanted and patches["applied"] != wanted:
        has = f"{patches['applied'][:12]} is" if patches["applied"] else "none is"
        yield f"the patch set {wanted[:12]} is meant; {has} applied"
    elif not wanted and patches["applied"] is None:
        raise NotChecked("SGLang is not patched, and nothing says that it has to be")


CHECKS = (
    Check(
        "pinned-versions",
        BLOCKING,
        "the packages that SGLang pins have these versions",
        "SGLang was tested with exactly these; kernels and PyTorch must fit to the patch level.",
        "Install SGLang in one step with all of its dependencies, and nothing over it.",
        "a later `pip install` that moved torch or flashinfer under a working SGLang",
        "sgl-project/sglang#27654",
        _pinned,
    ),
    Check(
        "lock",
        BLOCKING,
        "the packages have the versions of the lock",
        "This image is not the one that was proven.",
        "Build it anew from the lock, or accept the new state with `ddtree image lock`.",
        "pip silently resolving an old SGLang (0.5.9) in place of a new one",
        "sgl-project/sglang#27654",
        _lock,
    ),
    Check(
        "package-twice",
        ADVISORY,
        "no package is installed twice",
        "Which of the two is imported depends on the path; pip sees only one.",
        "Remove one of them; in an image of CUDA + pip use one Python alone.",
        "an upgrade that changes nothing, since an older copy is found first",
        "https://packaging.python.org/en/latest/specifications/recording-installed-packages/",
        _twice,
    ),
    Check(
        "patch-set",
        BLOCKING,
        "the patch set is applied and intact",
        "DDTREE is missing, or is not the code that was tested.",
        "`ddtree patch status`, then `ddtree patch apply` on the unpacked wheel; build the image "
        "anew.",
        "a reinstall of SGLang that silently drops the patches",
        "sgl-project/sglang#29907",
        _patch_set,
    ),
)
