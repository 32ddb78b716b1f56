"""Facts of the Python packages here: versions, SGLang's own pins, the patch set."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
from pathlib import Path
from typing import Any

_PIN = re.compile(r"^([A-Za-z0-9_.-]+)(\[[^\]]*\])?==([^\s;,]+)$")
PATCH_JOURNAL = "ddtree-patch/applied.json"


def canonical(name: str) -> str:
    """PEP 503: one spelling for each package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, Any]:
    """Versions by name; a package that is there twice is listed with all of its versions."""
    versions: dict[str, str] = {}
    twice: dict[str, list[str]] = {}
    for found in importlib.metadata.distributions():
        try:
            name, version = canonical(found.metadata["Name"]), found.version
        except (KeyError, TypeError, AttributeError):
            continue  # a folder that an uninstall left behind
        if not name or not version:
            continue
        if versions.setdefault(name, version) != version:
            twice.setdefault(name, [versions[name]]).append(version)
    return {"versions": dict(sorted(versions.items())), "twice": twice}


def pins() -> dict[str, Any]:
    """The exact versions that the installed SGLang asks for, without those of its extras."""
    try:
        wanted = importlib.metadata.requires("sglang") or []
    except importlib.metadata.PackageNotFoundError:
        return {"unknown": "SGLang is not installed here"}
    found = {}
    for line in wanted:
        requirement, _, marker = line.partition(";")
        match = _PIN.match(requirement.replace(" ", ""))
        if match and not marker.strip():
            found[canonical(match.group(1))] = match.group(3)
    return {"sglang": importlib.metadata.version("sglang"), "exact": found}


def torch() -> dict[str, Any]:
    """What PyTorch's files say, without an import, which takes seconds."""
    try:
        place = importlib.metadata.distribution("torch").locate_file("torch/version.py")
        text = Path(str(place)).read_text(encoding="utf-8")
    except (importlib.metadata.PackageNotFoundError, OSError):
        return {"unknown": "PyTorch is not installed here"}
    found = dict(re.findall(r"^(__version__|cuda)\b[^=]*= '([^']+)'", text, re.MULTILINE))
    return {"version": found.get("__version__"), "cuda": found.get("cuda")}


def patch_set() -> dict[str, Any]:
    """What `ddtree patch apply` left beside SGLang, against the files as they are now."""
    try:
        distribution = importlib.metadata.distribution("sglang")
    except importlib.metadata.PackageNotFoundError:
        return {"unknown": "SGLang is not installed here"}
    site = Path(str(distribution.locate_file("")))
    info = next(iter(site.glob(f"sglang-{distribution.version}.dist-info")), None)
    try:
        journal = json.loads(((info or site) / PATCH_JOURNAL).read_text(encoding="utf-8"))
        entries = [(str(entry["path"]), str(entry["after"])) for entry in journal["entries"]]
        set_hash = str(journal["set_hash"])
    except FileNotFoundError:
        # Without the journal, as in an image built from another hand's patched wheel.
        added = (site / "sglang/srt/speculative/ddtree").is_dir()
        return {"applied": None, "modules": added, "changed": []}
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"unknown": f"{PATCH_JOURNAL} cannot be read: {error}"}
    # An installer rewrites RECORD; it is no code.
    changed = [
        path
        for path, after in entries
        if not path.endswith("/RECORD") and _digest(site / path) != after
    ]
    return {"applied": set_hash, "modules": True, "changed": changed}


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
