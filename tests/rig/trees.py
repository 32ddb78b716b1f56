"""What the rig builds once and keeps: the hosts' Debian, and the image of the engine.

Each is named for a hash of what it is made from, so that a change of that makes a new one. The
process that builds holds a lock; others wait for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "ddtree_ops_cli"
KEPT = 3
"""Of each kind: a branch or two may be tested by turns."""

_SUITE = "trixie"
_HOST_PACKAGES = (
    "ca-certificates,docker.io,docker-cli,docker-buildx,iptables,iproute2,openssh-server,"
    "busybox-static,tini,sudo,procps,python3-minimal"
)
_ENGINE_PACKAGES = "python3,libstdc++6"
_LEAN = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "locale", "man")]
_SITE = "usr/local/lib/python3.13/dist-packages"
_PYTHON = "3.13"
# What the lab engine imports, and what that imports. Nothing else of the toolkit is in the image.
_WHEELS = (
    "numpy", "safetensors", "tokenizers", "jinja2", "markupsafe", "starlette", "anyio", "idna",
    "typing_extensions", "uvicorn", "click", "h11", "pydantic", "pydantic_core",
    "annotated_types", "typing_inspection",
)  # fmt: skip


def host_tree(directory: Path) -> Path:
    """The tree that all hosts share: some 500 MB of Debian, which takes minutes, once."""

    def build(half: Path) -> None:
        _debian(half, "apt", _HOST_PACKAGES)

    return kept(directory, "base", [_SUITE, _HOST_PACKAGES], build)


def engine_root(directory: Path) -> Path:
    """A file system with Python and all that the lab engine needs, without the engine itself."""
    wheels = [f"{name}=={version(name)}" for name in _WHEELS]

    def build(half: Path) -> None:
        _debian(half, "essential", _ENGINE_PACKAGES, *_LEAN)
        # The versions of this environment, as wheels for the Python of the image.
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        there = ["--target", str(half / _SITE), "--upgrade"]
        foreign = ["--python-version", _PYTHON, "--only-binary=:all:"]
        _run(*pip, *there, *foreign, *wheels)

    return kept(directory, "engine-root", [_SUITE, _ENGINE_PACKAGES, _PYTHON, *wheels], build)


def add_engine(root: Path) -> None:
    """The lab engine under SGLang's name, so that SGLang's command line starts it."""
    package, sglang = root / _SITE / PACKAGE.name, root / _SITE / "sglang"
    package.mkdir()
    for name in ("__init__.py", "errors.py"):
        shutil.copy(PACKAGE / name, package)
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE / "lab", package / "lab", ignore=unwanted)
    shutil.copytree(HERE / "engine", sglang, ignore=unwanted)
    # The engine says its version, which it asks Python for as that of an installed package.
    installed = root / _SITE / f"ddtree_ops-{version('ddtree-ops')}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: ddtree-ops\nVersion: {version('ddtree-ops')}\n"
    )
    _run("chmod", "-R", "u+rwX,go+rX,go-w", str(package), str(sglang), str(installed))


def engine_sources() -> list[str]:
    """A hash of each file that add_engine takes."""
    files = [PACKAGE / "__init__.py", PACKAGE / "errors.py"]
    files += [*(PACKAGE / "lab").rglob("*"), *(HERE / "engine").rglob("*")]
    found = sorted(f for f in files if f.is_file() and f.suffix != ".pyc")
    hashes = [f"{f.name} {hashlib.sha256(f.read_bytes()).hexdigest()}" for f in found]
    return [f"version {version('ddtree-ops')}", *hashes]


def kept(directory: Path, kind: str, inputs: Sequence[str], build: Callable[[Path], None]) -> Path:
    """The folder of this kind that these inputs make: found, or built in whole."""
    digest = hashlib.sha256(json.dumps(list(inputs)).encode()).hexdigest()[:12]
    made = directory / f"{kind}-{digest}"
    with locked(directory):
        if not made.exists():
            half = directory / f"half.{os.getpid()}"
            try:
                build(half)
                half.rename(made)
            finally:
                shutil.rmtree(half, ignore_errors=True)
        os.utime(made)
        others = [o for o in directory.glob(f"{kind}-*") if o.name[len(kind) + 1 :].isalnum()]
        for old in sorted(others, key=lambda one: -one.stat().st_mtime)[KEPT:]:
            shutil.rmtree(old, ignore_errors=True)
    return made


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    with (directory / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _debian(root: Path, variant: str, packages: str, *options: str) -> None:
    """From $DDTREE_RIG_MIRROR, or this machine's own mirror if it is a Debian."""
    shown = ["apt-get", "indextargets", "--format", "$(SITE)", "Identifier: Packages"]
    mirror = os.environ.get("DDTREE_RIG_MIRROR")
    if mirror is None:
        sites = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.split()
        mirror = next(site for site in sites if "security" not in site)
    stale = "--aptopt=Acquire::Check-Valid-Until false"
    _run("mmdebstrap", "--quiet", f"--variant={variant}", stale, *options,
         f"--include={packages}", _SUITE, str(root), mirror)  # fmt: skip


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
