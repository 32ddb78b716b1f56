"""The volume for compiled kernels can be written to by whoever the engine runs as."""

from __future__ import annotations

import pytest

from tests.rig import images
from tests.rig.conftest import Box, Operator

COMPILE = 'id -u; mkdir -p "$TRITON_CACHE_DIR" && echo kernel >"$TRITON_CACHE_DIR/$(id -u)"'
LIST = 'ls "$TRITON_CACHE_DIR"'


def compiles(box: Box) -> str:
    """What the engine does with its first kernel; who it is."""
    return box.host.run("docker", "exec", "ddtree-gpu1", "sh", "-c", COMPILE).strip()


@pytest.mark.parametrize(
    ("container", "user"),
    [
        ("", images.USER_ID),
        ("user: 4321:4321\n", 4321),
        # No image has this folder: Docker makes it, for root.
        ("kernel_cache: /opt/kernels/of mine\n", images.USER_ID),
    ],
    ids=["the image's own", "another user", "a folder that the image has not"],
)
def test_the_engine_may_keep_what_it_compiles(
    gpu_host: Box, operator: Operator, container: str, user: int
) -> None:
    operator.serves("gpu1", gpu_host, container=container)
    done = operator.ddtree("deploy", "gpu1", "--gpu", "1", "--service", "plain")
    assert done.returncode == 0, done.stderr
    assert compiles(gpu_host) == str(user)


def test_what_was_compiled_is_there_for_the_next_of_the_same_image_and_user(
    gpu_host: Box, operator: Operator
) -> None:
    operator.serves("gpu1", gpu_host)
    deploy = ("deploy", "gpu1", "--gpu", "1", "--service", "plain")
    assert operator.ddtree(*deploy).returncode == 0
    compiles(gpu_host)
    assert operator.ddtree(*deploy, "--port", "30055").returncode == 0
    there = gpu_host.host.run("docker", "exec", "ddtree-gpu1", "sh", "-c", LIST)
    assert there.split() == [str(images.USER_ID)]
    # What this one cannot add to, it does not get.
    operator.serves("gpu1", gpu_host, container="user: 4321:4321\n")
    assert operator.ddtree(*deploy).returncode == 0
    assert compiles(gpu_host) == "4321"
