"""The whole story on a real host: deploy, prove, compare, look, stop."""

from __future__ import annotations

import json

from tests.rig.conftest import Box, Operator

CONTAINER = "ddtree-gpu1"
# As the engine's own user: what of the GPUs it sees, and what it may open.
PROBE = """
import errno, glob, os
print(os.getuid(), *sorted(glob.glob("/dev/nvidia[0-9]*")))
try:
    os.open("/dev/nvidia1", os.O_RDWR)
except OSError as error:
    print(errno.errorcode[error.errno])
"""
# As root, who may make the node that is missing.
NEIGHBOUR = """
import errno, os
os.mknod("/dev/nvidia2", 0o020666, os.makedev(195, 2))
try:
    os.open("/dev/nvidia2", os.O_RDWR)
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def test_deploy_smoke_bench_status_stop(gpu_host: Box, operator: Operator) -> None:
    operator.serves("gpu1", gpu_host)
    host = gpu_host.host

    def ddtree(*words: str) -> str:
        before = host.logins()
        done = operator.ddtree(*words)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        assert host.logins() - before == 1, f"{words}: one connection for everything"
        return done.stdout

    ddtree("deploy", "gpu1", "--gpu", "1", "--budget", "32", "--allow-hybrid-unsafe")
    within = ["docker", "exec", CONTAINER, "python3", "-c"]
    assert host.run(*within, PROBE).splitlines() == ["1500 /dev/nvidia1", "ENXIO"]
    as_root = ["docker", "exec", "--user=root", CONTAINER, "python3", "-c"]
    assert host.run(*as_root, NEIGHBOUR) == "EPERM\n"
    assert "127.0.0.1:30001" in host.run("ss", "-Hltn")
    assert "0.0.0.0:30001" not in host.run("ss", "-Hltn")

    assert "passed" in ddtree("smoke", "gpu1")
    (operator.home / "mine.jsonl").write_text('{"prompt": "What is 2+2?"}\n')
    short = ["--suite", "mine.jsonl", "--rounds", "1", "--max-tokens", "16"]
    compared = json.loads(ddtree("bench", "gpu1", "--compare", "linear", *short, "--json", "-"))
    assert compared["complete"]
    arms = {name: arm["labels"] for name, arm in compared["arms"].items()}
    assert {(arm["algorithm"], arm["gpu"]) for arm in arms.values()} == {
        ("DDTREE", 1),
        ("DFLASH", 0),
    }

    (service,) = json.loads(ddtree("status", "gpu1", "--json"))["gpu1"]["services"]
    assert (service["gpu"], service["port"], service["budget"]) == (1, 30001, 32)
    ddtree("stop", "gpu1")
    assert CONTAINER not in host.run("docker", "ps", "--format", "{{.Names}}").split()
    # The service that bench compared with is gone too.
    assert host.run("docker", "ps", "--quiet") == ""
