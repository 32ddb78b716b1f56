"""What a container can reach of the host's GPUs, by the engine and the kernel alone."""

from __future__ import annotations

import pytest

from tests.rig import gpus, images
from tests.rig.conftest import Box
from tests.rig.rig import RigHost

# Opens GPU 0 to 3, making the node first where the container has none; says how each ended.
PROBE = """
import errno, os
for minor in range(4):
    node = f"/dev/nvidia{minor}"
    here = os.path.exists(node)
    if not here:
        os.mknod(node, 0o020666, os.makedev(195, minor))
    try:
        os.open(node, os.O_RDWR)
        how = "opened"
    except OSError as error:
        how = errno.errorcode[error.errno]
    print(minor, "there" if here else "absent", how)
"""


def probed(host: RigHost, *given: str) -> list[str]:
    run = ["docker", "run", "--rm", "--network=none", "--user=root", *given, images.ENGINE]
    return host.run(*run, "python3", "-c", PROBE).splitlines()


# The node's own driver would open it; here there is none, and the kernel looks for it only after
# the control group has let the container pass.
PINNED = ["0 absent EPERM", "1 there ENXIO", "2 absent EPERM", "3 absent EPERM"]


@pytest.mark.parametrize("device", ["1", gpus.uuid(1)])
def test_a_container_opens_the_gpu_it_was_given_and_no_other(gpu_host: Box, device: str) -> None:
    assert probed(gpu_host.host, "--gpus", f"device={device}") == PINNED


@pytest.mark.parametrize("device", ["1", gpus.uuid(1)])
def test_cdi_pins_in_the_same_way(cdi_host: Box, device: str) -> None:
    assert probed(cdi_host.host, "--device", f"nvidia.com/gpu={device}") == PINNED


def test_a_container_that_asked_for_no_gpu_has_none(gpu_host: Box) -> None:
    assert probed(gpu_host.host) == [f"{minor} absent EPERM" for minor in range(4)]


def test_the_engine_refuses_a_gpu_that_the_host_has_not(gpu_host: Box, cdi_host: Box) -> None:
    with pytest.raises(AssertionError, match="9: unknown device"):
        probed(gpu_host.host, "--gpus", "device=9")
    with pytest.raises(AssertionError, match=r"unresolvable CDI devices nvidia\.com/gpu=9"):
        probed(cdi_host.host, "--device", "nvidia.com/gpu=9")
    with pytest.raises(AssertionError, match="could not select device driver"):
        probed(cdi_host.host, "--gpus", "device=1")
