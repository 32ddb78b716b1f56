"""`deploy ct200 --gpu 1 --budget 32` on a host with GPUs of 96 GB, with the profiles as shipped.

The weights of the published pair are files of their true sizes with nothing in them but headers,
which is all that is read before a start.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.conftest import Box, Operator

MODELS = Path(__file__).parents[1] / "services/cases/models"
HUB = "/home/ops/.cache/huggingface/hub"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TARGET_BYTES, DRAFTER_BYTES = 55_600_000_000, 3_460_000_000
FLAGSHIP = ("deploy", "ct200", "--gpu", "1", "--budget", "32", "--allow-hybrid-unsafe")


def downloaded(box: Box, repository: str, config: object, size: int) -> None:
    """In the cache of the login, as `hf download` leaves it."""
    tensor = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}
    header = json.dumps({"weights": tensor})
    root = f"{HUB}/models--{repository.replace('/', '--')}"
    snapshot = f"{root}/snapshots/{COMMIT}"
    box.host.run("mkdir", "-p", snapshot, f"{root}/refs")
    box.host.write(f"{root}/refs/main", COMMIT)
    box.host.write(f"{snapshot}/config.json", json.dumps(config))
    start = struct.pack("<Q", len(header)).decode("latin-1")
    assert start.isascii(), "it is written as text"
    box.host.write(f"{snapshot}/model.safetensors", start + header)
    whole = str(8 + len(header) + size)
    box.host.run("truncate", "-s", whole, f"{snapshot}/model.safetensors")


@pytest.fixture
def ct200(gpu_host: Box, operator: Operator) -> Iterator[Box]:
    added = operator.ddtree("hosts", "add", "ct200", "--address", gpu_host.address)
    assert added.returncode == 0, added.stderr
    operator.knows((gpu_host.address, gpu_host.host))
    published = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": json.loads((MODELS / "qwen3.6-27b/config.json").read_text()),
        "vision_config": {"depth": 27, "hidden_size": 1152},
    }
    drafter = json.loads((MODELS / "qwen3.6-27b-dflash/config.json").read_text())
    downloaded(gpu_host, "Qwen/Qwen3.6-27B", published, TARGET_BYTES)
    downloaded(gpu_host, "z-lab/Qwen3.6-27B-DFlash", drafter, DRAFTER_BYTES)
    gpu_host.host.run("chmod", "a+rx", "/home/ops")
    yield gpu_host
    gpu_host.host.run("rm", "-rf", "/home/ops/.cache")
    gpu_host.host.run("chmod", "700", "/home/ops")


def test_it_fits_with_the_profiles_as_shipped(ct200: Box, operator: Operator) -> None:
    done = operator.ddtree(*FLAGSHIP, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    argv = json.loads(done.stdout)["ct200"]["argv"]
    assert argv[argv.index("--mem-fraction-static") + 1] == "0.856"
    assert argv[argv.index("--speculative-ddtree-budget") + 1] == "32"
    assert "1 request is decoded at once, not 48" in done.stderr


def test_with_the_engines_own_share_the_refusal_says_what_to_set_and_where(
    ct200: Box, operator: Operator
) -> None:
    operator.declares("models", "qwen3.6-27b", "mem_fraction_static:\n")
    done = operator.ddtree(*FLAGSHIP, "--dry-run")
    assert done.returncode == 1
    [line] = [x for x in done.stderr.splitlines() if x.startswith("error: ")]
    assert "GPU 1 of host ct200: it does not fit: a budget of 32 keeps 33 recurrent states" in line
    assert "--budget 28 or mem_fraction_static: 0.856 in the model's profile fit" in line
    assert "`ddtree plan ct200 --gpu 1` shows what takes how much" in line
    # What it says is true.
    for words, profile in (
        (("--budget", "28"), "mem_fraction_static:\n"),
        ((), "mem_fraction_static: 0.856\n"),
    ):
        operator.declares("models", "qwen3.6-27b", profile)
        done = operator.ddtree(*FLAGSHIP, "--dry-run", *words)
        assert done.returncode == 0, done.stderr
