"""`ddtree version`."""

from __future__ import annotations

from .options import AsJson


def version(
    as_json: AsJson = False,
) -> None:
    """Print the versions.

    Of ddtree and Python, of the patch sets (each for one SGLang), and of the SGLang installed here.
    """
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from ..bundled import bundled
    from ..output import machine
    from ..output.console import data
    from ..patchset.manifest import PatchSet, known_versions

    try:
        sglang = installed("sglang")
    except PackageNotFoundError:
        sglang = None
    sets = {
        release: PatchSet.load(release).set_hash for release in known_versions(bundled("patches"))
    }
    if as_json:
        machine.write(
            {
                "ddtree": installed("ddtree-ops"),
                "python": platform.python_version(),
                "patch_sets": sets,
                "sglang": sglang,
            }
        )
        return
    lines = [f"ddtree {installed('ddtree-ops')}", f"python {platform.python_version()}"]
    lines += [f"patch set {digest[:12]} for sglang {release}" for release, digest in sets.items()]
    lines.append(f"sglang {sglang} in this Python" if sglang else "sglang is not in this Python")
    data().print("\n".join(lines), markup=False, soft_wrap=True)
