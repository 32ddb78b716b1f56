"""An operator with a host that builds, `gpu1`, and another, `gpu2`, for the tests of images."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import Ddtree
from tests.rig.conftest import Box, DockerHosts, Operator
from tests.rig.image_base import BASE, SGLANG, give_base, wheel
from tests.rig.rig import Rig
from tests.rig.trees import HERE

PATCH_SET = yaml.safe_load((HERE.parents[1] / "patches/sglang-0.5.17/manifest.yaml").read_text())[
    "set_hash"
]
PATIENCE_S = 400
"""A build takes half a minute on an idle machine."""
# The base has neither PyTorch nor nvcc nor a driver's library; the doctor is right about it.
ACCEPTED = ("cuda-starts", "jit-compile", "kernel-import", "libraries-found")


@dataclass
class Site:
    operator: Operator
    gpu1: Box
    gpu2: Box
    words: tuple[str, ...]
    """Of a build on the small base."""

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.operator.ddtree.start(*words)
        out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(list(words), process.returncode, out, err)

    def building(
        self, tag: str, *, base: str = BASE, accept: Sequence[str] = ACCEPTED
    ) -> list[str]:
        """The words of a build."""
        accepted = [word for check in accept for word in ("--accept", check)]
        return ["build", "gpu1", "--base", base, "--tag", tag, *self.words, *accepted, "--json"]

    def build(self, tag: str, *, base: str = BASE, accept: Sequence[str] = ACCEPTED) -> Any:
        return self(*self.building(tag, base=base, accept=accept))


def opened(rig: Rig, docker_hosts: DockerHosts, home: Path) -> Iterator[Site]:
    """For a fixture; afterwards the hosts have no container and no image of the project's."""
    gpu1 = docker_hosts("rig1", "10.77.21", access="gpus")
    gpu2 = docker_hosts("rig2", "10.77.22", access="cdi")
    give_base(rig, gpu1.host)
    operator = Operator(home, Ddtree.at(home), rig.key)
    (home / ".ssh").mkdir(mode=0o700)
    operator.configure()
    operator.knows((gpu1.address, gpu1.host), (gpu2.address, gpu2.host))
    operator.profile("gpu1", gpu1.address)
    operator.profile("gpu2", gpu2.address)
    source = str(wheel(rig, SGLANG))
    yield Site(operator, gpu1, gpu2, ("--packages", "base", "--wheel", source))
    for box in (gpu1, gpu2):
        rig.plug(box.cable, up=True)
        box.host.run(
            "sh",
            "-c",
            "docker ps -aq | xargs -r docker rm -f -v; docker images -q --filter "
            "label=dev.ddtree.context | sort -u | xargs -r docker rmi -f; "
            "docker images -q --filter label=dev.ddtree.stage | xargs -r docker rmi -f; "
            "rm -rf /home/ops/.local/state/ddtree",
        )


def tags(box: Box, tag: str) -> list[str]:
    shown = box.host.run("docker", "images", "--format", "{{.Repository}}:{{.Tag}}")
    return [line for line in shown.splitlines() if line == tag]


def inspected(box: Box, reference: str) -> Any:
    return json.loads(box.host.run("docker", "image", "inspect", reference))[0]


def containers(box: Box) -> list[str]:
    """Name and command of each, running or not."""
    shown = box.host.run("docker", "ps", "-a", "--no-trunc", "--format", "{{.Names}} {{.Command}}")
    return shown.splitlines()


def until(so: Callable[[], bool], what: str, *, patience_s: float = 120) -> None:
    for _ in range(int(patience_s / 0.1)):
        if so():
            return
        time.sleep(0.1)
    raise AssertionError(f"it never was so that {what}")
