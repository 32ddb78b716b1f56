"""`ddtree version`."""

from __future__ import annotations

from .options import AsJson


def version(
    as_json: AsJson = False,
) -> None:
    """Print the versions.

    Of ddtree, of the SGLang that its patch set is written for, and of Python.
    """
    import platform
    from importlib.metadata import version as installed

    from ..output import machine
    from ..output.console import data
    from ..services.sglang_args import SGLANG_VERSION

    facts = {
        "ddtree": installed("ddtree-ops"),
        "sglang": SGLANG_VERSION,
        "python": platform.python_version(),
    }
    if as_json:
        machine.write(facts)
    else:
        data().print("\n".join(f"{name} {number}" for name, number in facts.items()))
