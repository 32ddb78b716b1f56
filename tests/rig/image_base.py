"""What the tests of the image build on: a small base with the real kernels of SGLang.

A base as the Dockerfile takes it with PACKAGES=base: Debian, Python, and the libraries of the wheel
sglang-kernel 0.4.5 that SGLang always loads, as published; the optional ones have 1.2 GB. There is
no PyTorch: the doctor inside says so.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.rig.images import UNPATCHED
from tests.rig.rig import Rig, RigHost
from tests.rig.trees import locked

BASE = "ddtree-rig/base:kernels"
KERNEL, SGLANG = "sglang-kernel==0.4.5", "sglang==0.5.17"
_SITE = "usr/local/lib/python3.13/dist-packages"
_LEFT_OUT = (
    "sgl_kernel/flash_ops",
    "sgl_kernel/flashmla_ops",
    "sgl_kernel/infllm_ops",
    "triton_kernels/",
)
_PYTHON = "3.12"


_NVIDIA_SMI = """#!/usr/bin/python3
# As the container runtime mounts it: of the host's GPUs it sees those whose device is here.
import os, sys
fields = [w.split("=", 1)[1] for w in sys.argv if w.startswith("--query-gpu=")]
known = {"name": "NVIDIA RTX PRO 6000 Blackwell Server Edition", "compute_cap": "12.0",
          "driver_version": "580.95.05", "memory.total": "97887 MiB"}
seen = [n for n in range(8) if os.path.exists(f"/dev/nvidia{n}")]
if not seen:
    sys.exit(print("No devices were found") or 6)
for n in seen if fields else []:
    row = dict(known, index=str(n), uuid=f"GPU-0000000{n}-1111-2222-3333-444444444444")
    print(", ".join(row.get(field, "[N/A]") for field in fields[0].split(",")))
"""
"""Stands in for nvidia-smi in a container of a rig host."""


def wheel(rig: Rig, requirement: str) -> Path:
    """A published wheel, fetched once and kept beside the rig's other files."""
    folder = rig.directory / "wheels"
    folder.mkdir(exist_ok=True)
    name, _, version = requirement.partition("==")
    with locked(rig.directory):
        if not (found := sorted(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))):
            argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            argv += ["--only-binary=:all:", "--python-version", _PYTHON, "--dest", str(folder)]
            for platform in ("manylinux_2_34_x86_64", "manylinux2014_x86_64"):
                argv += ["--platform", platform]
            subprocess.run([*rig.outside, *argv, requirement], check=True)
            found = sorted(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    return found[0]


def give_base(rig: Rig, host: RigHost) -> None:
    """Import it on a host that does not have it yet."""
    if host.run("docker", "images", "-q", BASE).strip():
        return
    folder = host.home / "base"
    folder.mkdir()
    try:
        site = (folder / "site.tar").open("wb")
        with zipfile.ZipFile(wheel(rig, KERNEL)) as archive, site as out:
            _repack(archive, out)
        (folder / "nvidia-smi").write_text(_NVIDIA_SMI)
        (folder / "Dockerfile").write_text(
            f"FROM {UNPATCHED}\nUSER root\nADD site.tar /{_SITE}/\n"
            "COPY nvidia-smi /usr/local/bin/nvidia-smi\nRUN chmod 755 /usr/local/bin/nvidia-smi\n"
            # The lab engine goes by SGLang's name; the real one takes its place.
            f"RUN rm -rf /{_SITE}/sglang\n"
        )
        with subprocess.Popen(
            ["tar", "-C", str(folder), "-c", "."], stdout=subprocess.PIPE
        ) as context:
            host.run("docker", "build", "-t", BASE, "-", stdin=context.stdout)
    finally:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def give_python(rig: Rig, host: RigHost) -> None:
    """The whole standard library, for a host that has python3-minimal."""
    root = rig.engine_root
    # ctypes is a part of it and needs a library of its own.
    parts = ["usr/lib/python3.13", *(str(f.relative_to(root)) for f in root.rglob("libffi.so*"))]
    with subprocess.Popen(["tar", "-C", str(root), "-c", *parts], stdout=subprocess.PIPE) as tar:
        host.run("tar", "-C", "/", "-x", "--keep-directory-symlink", stdin=tar.stdout)


def _repack(archive: zipfile.ZipFile, out: io.BufferedWriter) -> None:
    with tarfile.open(fileobj=out, mode="w|") as tar:
        for info in archive.infolist():
            if info.is_dir() or info.filename.startswith(_LEFT_OUT):
                continue
            head = tarfile.TarInfo(info.filename)
            head.size, head.mode = info.file_size, 0o644
            with archive.open(info) as content:
                tar.addfile(head, content)
