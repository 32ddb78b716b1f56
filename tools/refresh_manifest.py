"""Recompute the hashes of a patch set's manifest.

    python tools/refresh_manifest.py TREE [--patches DIR] [--check]

TREE is an unpacked wheel of an SGLang version that the patches are for, not patched. In the
manifest, `sglang`, `modules.source`, `modules.target` and each patch's `file`, `purpose`,
`upstream` and `drop` are written by hand, with the comment at its top; everything else is
replaced. A module `patched_files.py` of the set is written too: by it, a server knows a
half-patched SGLang. --check writes nothing and fails if something would change.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from ddtree_ops_cli.errors import DdtreeError, UsageError
from ddtree_ops_cli.patchset.hunks import applied, parse
from ddtree_ops_cli.patchset.manifest import PatchSet, set_hash_of, sha256
from ddtree_ops_cli.patchset.target import Installation, locate

PATCHES = Path(__file__).parent.parent / "patches"
PROSE = ("file", "purpose", "upstream", "drop")
PATCHED_FILES = "patched_files.py"


def refreshed(tree: Installation, patches: Path) -> dict[Path, str]:
    """The manifest for this version, and what else is written, with the text it should have."""
    folder = patches / f"sglang-{tree.version}"
    file = folder / "manifest.yaml"
    if not file.exists():
        raise UsageError("no such file", where=str(file), mend="write its prose first")
    text = file.read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    listed = [entry["file"] for entry in document["patches"]]
    for unlisted in sorted({path.name for path in folder.glob("*.patch")} - set(listed)):
        raise UsageError(
            "the manifest does not list it",
            where=str(folder / unlisted),
            mend=f"add an entry with {', '.join(PROSE)}",
        )
    now: dict[str, bytes] = {}
    hashes: dict[str, tuple[str, ...]] = {}
    entries = []
    for entry in document["patches"]:
        content = _read(folder / entry["file"])
        files = {}
        for path, change in parse(content, where=entry["file"]).items():
            if path not in now:
                now[path] = _read(tree.place(path))
                hashes[path] = (sha256(now[path]),)
            before = sha256(now[path])
            now[path] = applied(change, now[path], where=entry["file"])
            files[path] = {"before": before, "after": sha256(now[path])}
            hashes[path] = (*hashes[path], files[path]["after"])
        prose = {key: entry[key] for key in PROSE}
        entries.append({**prose, "sha256": sha256(content), "files": files})
    modules = document["modules"]
    source = patches / modules["source"]
    modules_now = {path: _read(path) for path in sorted(source.rglob("*.py"))}
    texts = {}
    listing = source / PATCHED_FILES
    if listing in modules_now:
        texts[listing] = _patched_files({path: found[-1] for path, found in hashes.items()})
        modules_now[listing] = texts[listing].encode()
    new = {path.relative_to(source).as_posix(): sha256(text) for path, text in modules_now.items()}
    added = {f"{modules['target']}/{name}": sha for name, sha in new.items()}
    written = {
        "format": 1,
        "sglang": tree.version,
        "set_hash": set_hash_of(tree.version, hashes, added),
        "patches": entries,
        "modules": {"source": modules["source"], "target": modules["target"], "files": new},
    }
    comment = "".join(line + "\n" for line in _leading_comment(text))
    dumped = yaml.safe_dump(written, sort_keys=False, width=100, allow_unicode=True)
    return texts | {file: comment + dumped}


def _patched_files(after: dict[str, str]) -> str:
    lines = "".join(f'    "{path}": "{sha[:16]}",\n' for path, sha in sorted(after.items()))
    return (
        '"""The files of SGLang that the set changes, and the first digits of their SHA-256 after '
        'it.\n\nWritten by tools/refresh_manifest.py.\n"""\n\nPATCHED = {\n' + lines + "}\n"
    )


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(file)) from error


def _leading_comment(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description="Recompute the hashes of a patch set's manifest.")
    parser.add_argument("tree", type=Path, metavar="TREE", help="unpacked, unpatched wheel")
    parser.add_argument("--patches", type=Path, default=PATCHES, metavar="DIR")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if outdated")
    options = parser.parse_args()
    try:
        tree = locate(options.tree)
        if not isinstance(tree, Installation):
            raise UsageError(tree.reason, where=str(tree.folder))
        for file, text in refreshed(tree, options.patches).items():
            if file.read_text(encoding="utf-8") == text:
                print(f"{file}: up to date")
            elif options.check:
                print(f"{file}: outdated", file=sys.stderr)
                return 1
            else:
                file.write_text(text, encoding="utf-8")
                print(f"{file}: refreshed")
        chosen = PatchSet.load(tree.version, options.patches)
        contents = chosen.contents(lambda path: tree.place(path).read_bytes())
        print(f"SGLang {tree.version}: {len(contents)} files, set {chosen.set_hash}")
    except KeyError as error:
        print(f"error: the manifest lacks {error}", file=sys.stderr)
        return 2
    except DdtreeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
