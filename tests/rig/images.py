"""The images of the rig's Docker hosts, made once by the Docker of one of them.

    ddtree-rig/engine:lab         the lab engine; the labels that an image of the project has
    ddtree-rig/engine:<fault>     the same with a fault of engine/launch_server.py
    ddtree-rig/engine:unpatched   the same without the label of the patch set

A host gets them not by `docker load`, which takes seconds, but as hard links to Docker's own
files: layers are never written to again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import yaml

from tests.rig import trees
from tests.rig.rig import Rig, RigHost

REPOSITORY = "ddtree-rig/engine"
ENGINE = f"{REPOSITORY}:lab"
PROJECT_IMAGE = "ddtree/sglang:0.5.17"
"""What a service runs whose profile names no image: here the lab engine too."""
FAULTS = ("dies", "hangs", "deaf", "out-of-memory")
UNPATCHED = f"{REPOSITORY}:unpatched"
USER = "engine"
USER_ID = 1500
_MANIFEST = trees.HERE.parents[1] / "patches/sglang-0.5.17/manifest.yaml"
_FILES = ("image", "overlay2")
"""Of Docker's folder, what makes up its images."""


def fault(name: str) -> str:
    """The image of a fault."""
    assert name in FAULTS
    return f"{REPOSITORY}:{name}"


def built(rig: Rig) -> Path:
    """The folder with Docker's files of all images."""
    root = rig.engine_root
    patch_set = yaml.safe_load(_MANIFEST.read_text())["set_hash"]
    inputs = [root.name, patch_set, Path(__file__).read_text(), *trees.engine_sources()]

    def build(half: Path) -> None:
        host = rig.boot("images", docker=True)
        try:
            host.await_docker()
            _make(host, root, patch_set)
            host.stop_docker()
            half.mkdir()
            for name in _FILES:
                (host.home / "docker" / name).rename(half / name)
        finally:
            host.off()

    return trees.kept(rig.directory, "images", inputs, build)


def give(images: Path, home: Path) -> None:
    """To a host that is not booted yet."""
    docker = home / "docker"
    docker.mkdir(exist_ok=True)
    shutil.copytree(images / "image", docker / "image")
    subprocess.run(["cp", "-al", str(images / "overlay2"), str(docker)], check=True)


def _make(host: RigHost, root: Path, patch_set: str) -> None:
    tree = host.home / "engine"
    subprocess.run(["cp", "-al", str(root), str(tree)], check=True)
    trees.add_engine(tree)
    passwd = (tree / "etc/passwd").read_text()
    (tree / "etc/passwd").unlink()
    (tree / "etc/passwd").write_text(f"{passwd}{USER}:x:{USER_ID}:{USER_ID}::/tmp:/bin/sh\n")
    # A volume that is mounted here gets this owner.
    cache = tree / "var/cache/ddtree"
    cache.mkdir()
    os.chown(cache, USER_ID, USER_ID)
    engine = f'LABEL dev.ddtree.engine="lab {version("ddtree-ops")}"'
    changes = [f"USER {USER}", "ENV OMP_NUM_THREADS=1", 'CMD ["python3"]', engine]
    words = [word for change in changes for word in ("--change", change)]
    with subprocess.Popen(["tar", "-C", str(tree), "-c", "."], stdout=subprocess.PIPE) as tar:
        host.run("docker", "import", *words, "-", UNPATCHED, stdin=tar.stdout)
    if tar.returncode != 0:
        raise RuntimeError("tar failed")
    _derive(host, UNPATCHED, f"LABEL dev.ddtree.patch_set={patch_set}", ENGINE)
    host.run("docker", "tag", ENGINE, PROJECT_IMAGE)
    for name in FAULTS:
        _derive(host, ENGINE, f"ENV RIG_FAULT={name}", fault(name))


def _derive(host: RigHost, image: str, change: str, tag: str) -> None:
    made = host.run("docker", "create", image).strip()
    host.run("docker", "commit", "--change", change, made, tag)
    host.run("docker", "rm", made)
