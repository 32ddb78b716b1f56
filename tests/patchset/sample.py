# ruff: noqa: W293 - a blank context line of a diff is a space
"""A wheel tree with the shape of SGLang's, a patch set for it, and fingerprints of trees."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ddtree_ops_cli.patchset.apply import Outcome, apply, revert
from ddtree_ops_cli.patchset.target import Installation, locate
from ddtree_ops_cli.patchset.verify import Survey, survey

VERSION = "0.5.17"
DIST_INFO = f"sglang-{VERSION}.dist-info"
MODULES = "sglang/srt/speculative/ddtree"
PROJECT = Path(__file__).parent.parent.parent

ARGS = "sglang/srt/server_args.py"
SPEC = "sglang/srt/speculative/spec_info.py"
WORKER = "sglang/srt/speculative/worker.py"
RECORD = f"{DIST_INFO}/RECORD"
STORE = f"{DIST_INFO}/ddtree-patch"
PATCHED = (ARGS, SPEC, WORKER)
ADDED = (f"{MODULES}/__init__.py", f"{MODULES}/kernels/__init__.py", f"{MODULES}/tree.py")

FILES = {
    "sglang/__init__.py": b'__version__ = "0.5.17"\n',
    "sglang/srt/__init__.py": b"",
    ARGS: b"class ServerArgs:\n    algorithm = None\n    topk = 1\n\n\ndef parse():\n    pass\n",
    "sglang/srt/speculative/__init__.py": b"",
    # Not UTF-8, a form feed, CRLF, and no newline at its end: every byte must survive.
    SPEC: b'# caf\xe9\r\nNAMES = ["DFLASH"]\n\x0c\nLAST = 1',
    WORKER: b"def step():\n    return 1\n",
    "sglang/srt/untouched.py": b"x = 1\n",
    f"{DIST_INFO}/METADATA": b"Metadata-Version: 2.4\nName: sglang\nVersion: 0.5.17\n\nText.\n",
    f"{DIST_INFO}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}

PATCHES = {
    "0001-flags.patch": b"""\
Text before the diff is for people.

--- a/sglang/srt/server_args.py
+++ b/sglang/srt/server_args.py
@@ -1,5 +1,6 @@
 class ServerArgs:
     algorithm = None
+    budget = 16
     topk = 1
 
 
""",
    "0002-algorithm.patch": b"""\
diff --git a/sglang/srt/speculative/spec_info.py b/sglang/srt/speculative/spec_info.py
index 1234567..89abcde 100644
--- a/sglang/srt/speculative/spec_info.py
+++ b/sglang/srt/speculative/spec_info.py
@@ -1,4 +1,5 @@
 # caf\xe9\r
-NAMES = ["DFLASH"]
+NAMES = ["DFLASH", "DDTREE"]
 \x0c
-LAST = 1
\\ No newline at end of file
+LAST = 2
+from .ddtree import tree
\\ No newline at end of file
diff --git a/sglang/srt/speculative/worker.py b/sglang/srt/speculative/worker.py
--- a/sglang/srt/speculative/worker.py
+++ b/sglang/srt/speculative/worker.py
@@ -1,2 +1,3 @@
 def step():
-    return 1
+    width = 2
+    return width
""",
    # The same file a second time, by its lines after the first patch.
    "0003-cap.patch": b"""\
--- a/sglang/srt/server_args.py
+++ b/sglang/srt/server_args.py
@@ -3,6 +3,7 @@
     budget = 16
     topk = 1
+    topk_cap = 8
 
 
 def parse():
     pass
""",
}

PROSE = """\
# The patches of the tests.
format: 1
sglang: 0.5.17
patches:
- file: 0001-flags.patch
  purpose: Adds a flag.
  upstream: none yet
  drop: until flags can be added from outside
- file: 0002-algorithm.patch
  purpose: Names the algorithm.
  upstream: none yet
  drop: until algorithms are found by name
- file: 0003-cap.patch
  purpose: Adds another flag.
  upstream: none yet
  drop: until flags can be added from outside
modules:
  source: ddtree
  target: sglang/srt/speculative/ddtree
"""

NEW = {
    "__init__.py": b"",
    "tree.py": b"def build():\n    return ()\n",
    "kernels/__init__.py": b"# kernels\n",
}


Fingerprint = dict[str, tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Sample:
    tree: Path
    patches: Path

    def read(self, path: str) -> bytes:
        return (self.tree / path).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        """In place, as an editor does."""
        with (self.tree / path).open("r+b") as file:
            file.truncate()
            file.write(content)

    def add(self, path: str, content: bytes = b"") -> Path:
        place = self.tree / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        return place


def put(sample: Sample, *, dry_run: bool = False) -> Outcome:
    return apply(sample.tree, sample.patches, dry_run=dry_run)


def back(sample: Sample, *, dry_run: bool = False) -> Outcome:
    return revert(sample.tree, sample.patches, dry_run=dry_run)


def look(sample: Sample) -> Survey:
    return survey(sample.tree, sample.patches)


def installation(sample: Sample) -> Installation:
    found = locate(sample.tree)
    assert isinstance(found, Installation)
    return found


def write_tree(root: Path, *, end: str = "\r\n") -> Path:
    for path, content in FILES.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    lines = [record_line(path, content) for path, content in FILES.items()]
    (root / RECORD).write_bytes(
        "".join(f"{line}{end}" for line in [*lines, f"{RECORD},,"]).encode()
    )
    (root / WORKER).chmod(0o600)
    (root / ARGS).chmod(0o755)
    return root


def record_line(path: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}"


def write_patches(root: Path, *, modules: dict[str, bytes] | None = None) -> Path:
    """The set of this file, or one with other modules."""
    folder = root / f"sglang-{VERSION}"
    folder.mkdir(parents=True)
    for name, content in PATCHES.items():
        (folder / name).write_bytes(content)
    for name, content in (NEW if modules is None else modules).items():
        place = root / "ddtree" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    (folder / "manifest.yaml").write_text(PROSE, encoding="utf-8")
    done = refresh(write_tree(root.parent / f"{root.name}-for-hashes"), root)
    assert done.returncode == 0, done.stderr
    return root


def refresh(tree: Path, patches: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    tool = PROJECT / "tools" / "refresh_manifest.py"
    return subprocess.run(
        [sys.executable, str(tool), str(tree), "--patches", str(patches), *flags],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )


def fingerprint(root: Path, *, inodes: bool = False) -> Fingerprint:
    """Every file, folder and link below `root`: kind, mode, owner, and content or aim.

    With `inodes`, also which file on the disk it is, its time of change and its links.
    """
    found: Fingerprint = {}
    for place in sorted(root.rglob("*")):
        facts = place.lstat()
        aim: object = None
        if place.is_symlink():
            aim = str(place.readlink())
        elif place.is_file():
            aim = hashlib.sha256(place.read_bytes()).hexdigest()
        key = place.relative_to(root).as_posix()
        found[key] = (facts.st_mode, facts.st_uid, facts.st_gid, aim)
        if inodes and not place.is_dir():
            found[key] += (facts.st_ino, facts.st_mtime_ns, facts.st_nlink)
    return found
