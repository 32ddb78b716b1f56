"""The patched SGLang itself in a container, on the CPU with interpreted kernels.

Runs where `make test-sglang` has assembled it.
"""

from __future__ import annotations

import configparser
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.random_pair import write_random_pair
from tests.rig.conftest import Box, DockerHosts, Operator

ROOT = Path(__file__).parents[2]
VENV = (ROOT / ".venv-sglang").resolve()
ENGINE = VENV / "engine"
SHIMS = ROOT / "tests/sglang_cpu/shims"
LIMIT_S = 1800
"""Interpreted kernels take seconds per step, and more on a busy machine."""

pytestmark = pytest.mark.skipif(
    not (ENGINE / ".assembled").exists(), reason="make test-sglang assembles the engine"
)

SERVER_INFO = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:30001/server_info").read().decode())
"""
FLAGS = (
    "--device cpu --dtype float32 --triton-attention-num-kv-splits 1 --max-total-tokens 4096 "
    "--skip-server-warmup --disable-cuda-graph --disable-prefill-cuda-graph "
    "--speculative-draft-attention-backend triton"
)


def parts() -> dict[Path, str]:
    """Folders of this machine, and where they lie on the host and in its container.

    Not where they are here: a user without rights must be able to enter them.
    """
    settings = configparser.ConfigParser()
    settings.read_string("[venv]\n" + (VENV / "pyvenv.cfg").read_text())
    python = Path(settings["venv"]["home"]).resolve().parent
    (site,) = VENV.glob("lib/python3*/site-packages")
    named = {"python": python, "site": site, "engine": ENGINE, "shims": SHIMS}
    return {folder: f"/srv/sglang/{name}" for name, folder in named.items()}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    # Of each kind of layer one: what is interpreted takes seconds a layer.
    write_random_pair(folder, layers=["linear_attention", "full_attention"])
    # The login on the host is another user.
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
    return folder


@pytest.fixture
def sglang_host(docker_hosts: DockerHosts, pair: Path, operator: Operator) -> Iterator[Box]:
    """A host with the engine's folders, and a service that runs it as it is, on a tiny pair."""
    needed = parts()
    box = docker_hosts(
        "rig4", "10.77.24", access="gpus", shared={**needed, pair: "/srv/models/random"}
    )
    operator.serves("sglang", box, ready_timeout_s=LIMIT_S)
    operator.declares(
        "models",
        "lab-pair",
        "target: /srv/models/random/target\ndrafter: /srv/models/random/drafter\n"
        "context_length: 512\n",
    )
    container = {
        "ulimits": {},
        "shm_size": "256m",
        "command": ["/srv/sglang/python/bin/python3", "-m", "sglang.launch_server"],
        "mounts": [f"{there}:{there}:ro" for there in needed.values()],
        "env": {
            "LD_LIBRARY_PATH": "/srv/sglang/python/lib",
            "PYTHONPATH": "/srv/sglang/shims:/srv/sglang/engine:/srv/sglang/site",
            "TRITON_INTERPRET": "1",
            "SGLANG_USE_CPU_ENGINE": "0",
            "SGLANG_MAMBA_CONV_DTYPE": "float32",
            "HF_HUB_OFFLINE": "1",
        },
    }
    engine = {"extra_args": FLAGS.split(), "max_running_requests": 4}
    operator.declares(
        "services", "ddtree", f"engine: {json.dumps(engine)}\ncontainer: {json.dumps(container)}\n"
    )
    yield box
    box.host.off()


def test_the_real_engine_passes_every_step_of_a_deploy(
    sglang_host: Box, operator: Operator
) -> None:
    """Health, a completion, and the quick smoke: each token is what a fresh prefill says.

    Its kernels are interpreted: on two cores at a load of 5 to 8 the whole took ten minutes. An
    answer, which may take 300 s as on a GPU, took 54 to 86 s.
    """
    deploy = operator.ddtree.start("deploy", "sglang", "--gpu", "1", "--budget", "4")
    try:
        _, said = deploy.communicate(timeout=LIMIT_S)
    finally:
        deploy.kill()
        deploy.wait()
    assert deploy.returncode == 0, said
    assert "verify that it serves lab-pair, with a real completion: 8 tokens" in said
    assert "what a fresh prefill says: determinism, re-derivation" in said
    within = ["docker", "exec", "ddtree-gpu1", "python3", "-c"]
    told = json.loads(sglang_host.host.run(*within, SERVER_INFO))
    assert (told["speculative_algorithm"], told["speculative_ddtree_budget"]) == ("DDTREE", 4)
    [service] = json.loads(operator.ddtree("status", "sglang", "--json").stdout)["sglang"][
        "services"
    ]
    assert (service["health"], service["algorithm"]) == ("healthy", "DDTREE")
