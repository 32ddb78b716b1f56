"""Weights and memory on real hosts: `ddtree plan` over SSH, as a login without root's rights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ddtree_ops_cli.hosts.shell import Completed, ThisMachine
from ddtree_ops_cli.services.weights import Source, read_weights
from tests.rig import gpus as table
from tests.rig.conftest import Box, Operator

MODELS = Path(__file__).parents[1] / "services/cases/models"
PAIR = "/srv/models/lab-pair"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB = "/home/ops/.cache/huggingface/hub"


@pytest.fixture
def planned(gpu1: Box, operator: Operator) -> Iterator[Box]:
    """A host with two GPUs of 96 GB and the lab's pair, known to the operator as gpu1."""
    operator.serves("gpu1", gpu1)
    gpu1.host.write("/etc/rig-gpus.json", table.table(2))
    yield gpu1
    gpu1.host.run("rm", "-rf", "/etc/rig-gpus.json", "/srv/weights", HUB)


def model(operator: Operator, target: str, drafter: str, more: str = "") -> None:
    file = operator.home / ".config/ddtree/profiles/models/mine.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f"description: mine\ntarget: {target}\ndrafter: {drafter}\nserved_name: mine\n"
        f"context_length: 32768\nblock_size: 16\nhybrid: true\n{more}"
    )


def plan(operator: Operator, *words: str, code: int = 0) -> tuple[dict[str, Any], str]:
    done = operator.ddtree("plan", "gpu1", "--json", *words)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout or "{}"), done.stderr


def refusal(operator: Operator) -> str:
    document, said = plan(operator, "--model", "mine", code=1)
    assert document == {}
    (line,) = said.splitlines()
    return line


def copied(box: Box, folder: str) -> None:
    """The pair's folder as a place of the host's own, with ordinary rights."""
    box.host.run("sh", "-c", f"mkdir -p {folder} && cp -r {PAIR}/. {folder} && "
                 f"chmod -R u+w,a+rX {folder}")  # fmt: skip


def test_a_pair_on_a_host_is_planned_in_one_login(planned: Box, operator: Operator) -> None:
    before = planned.host.logins()
    document, _ = plan(operator)
    assert planned.host.logins() - before == 1
    assert document["weights"]["target"]["directory"] == f"{PAIR}/target"
    (device,) = document["devices"]
    assert (device["title"], device["gpus"]) == ("GPU 0-1", [0, 1])
    assert sum(device["items"].values()) == device["capacity"] == 97887 << 20
    assert device["figures"]["requests_at_once"] == 48
    one, _ = plan(operator, "--gpu", "1", "--requests", "4", "--context", "512")
    (device,) = one["devices"]
    assert device["gpus"] == [1]
    assert device["figures"]["requests_at_once"] == 4
    assert "no GPU 7; there is: 0, 1" in plan(operator, "--gpu", "7", code=2)[1]


def test_the_published_27b_is_planned_by_its_config_and_index_alone(
    planned: Box, operator: Operator
) -> None:
    """What `hf download --include '*.json'` brings; 55.6 GB are not copied to learn that budget 32
    does not fit with SGLang's own share of memory."""
    model(operator, "/srv/weights/target", "/srv/weights/drafter")
    target = json.loads((MODELS / "qwen3.6-27b/config.json").read_text())
    published = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": target,
        "vision_config": {"depth": 27, "hidden_size": 1152},
    }
    index = {"metadata": {"total_size": 55_600_000_000}, "weight_map": {"a": "model-1.safetensors"}}
    planned.host.run("mkdir", "-p", "/srv/weights/target", "/srv/weights/drafter")
    planned.host.write("/srv/weights/target/config.json", json.dumps(published))
    planned.host.write("/srv/weights/target/model.safetensors.index.json", json.dumps(index))
    drafter = (MODELS / "qwen3.6-27b-dflash/config.json").read_text()
    planned.host.write("/srv/weights/drafter/config.json", drafter)
    document, said = plan(operator, "--model", "mine", "--budget", "32", code=1)
    (device,) = document["devices"]
    assert device["fits"] is False
    assert "a budget of 32 keeps 33 recurrent states of 147 MiB" in device["refusal"]
    assert device["figures"]["largest_budget"] == 28
    assert device["mend"].startswith(
        "--budget 28 or mem_fraction_static: 0.856 in the model's profile fit"
    )
    assert "1 of 1 weight files are missing: model-1.safetensors" in said
    document, _ = plan(operator, "--model", "mine", "--budget", "16", code=1)
    (device,) = document["devices"]
    assert device["figures"]["requests_at_once"] == 2
    assert "2 requests are decoded at once, not 48" in device["warnings"][0]


def test_the_cache_of_the_login_is_found(planned: Box, operator: Operator) -> None:
    model(operator, "org/target", "org/drafter", "target_revision: v1\n")
    assert f"org/target is not in the Hugging Face cache {HUB}" in refusal(operator)
    for name, revision in (("target", "v1"), ("drafter", "main")):
        repository = f"{HUB}/models--org--{name}"
        planned.host.run("mkdir", "-p", f"{repository}/snapshots", f"{repository}/refs")
        copied(planned, f"{HUB}/pair")
        planned.host.run("cp", "-r", f"{HUB}/pair/{name}", f"{repository}/snapshots/{COMMIT}")
        planned.host.write(f"{repository}/refs/{revision}", COMMIT)
    document, _ = plan(operator, "--model", "mine")
    assert document["weights"]["target"]["commit"] == COMMIT
    planned.host.run("rm", f"{HUB}/models--org--target/refs/v1")
    assert f"org/target has no revision v1 in {HUB}; there is: {COMMIT}" in refusal(operator)


def test_what_the_login_may_not_see_is_told_with_the_command(
    planned: Box, operator: Operator
) -> None:
    copied(planned, "/srv/weights")
    model(operator, "/srv/weights/target", "/srv/weights/drafter")
    plan(operator, "--model", "mine")
    planned.host.run("chmod", "600", "/srv/weights/target/model.safetensors")
    _, said = plan(operator, "--model", "mine", code=1)
    assert "gpu1:/srv/weights/target/model.safetensors: your login may not read it" in said
    planned.host.run("chmod", "700", "/srv/weights/target")
    line = refusal(operator)
    assert "gpu1:/srv/weights/target: the target cannot be listed: permission denied" in line
    assert "sudo chmod -R a+rX /srv/weights/target" in line


def test_a_file_that_was_cut_off_while_copying(planned: Box, operator: Operator) -> None:
    copied(planned, "/srv/weights")
    model(operator, "/srv/weights/target", "/srv/weights/drafter")
    planned.host.run("truncate", "-s", "1000000", "/srv/weights/target/model.safetensors")
    line = refusal(operator)
    assert "gpu1:/srv/weights/target/model.safetensors: truncated: 1000000 bytes" in line


def test_a_host_with_busybox_alone_is_read_the_same(planned: Box, operator: Operator) -> None:
    class Busybox(ThisMachine):
        def run(
            self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: str = ""
        ) -> Completed:
            alone = ["env", "-i", "PATH=/opt/busybox", "HOME=/home/ops"]
            out = planned.host.run(*alone, *argv, stdin=stdin)
            return Completed(tuple(argv), 0, out, "", 0.0, None)

    planned.host.run("mkdir", "-p", "/opt/busybox")
    planned.host.run("busybox", "--install", "-s", "/opt/busybox")
    sources = [Source("target", f"{PAIR}/target"), Source("drafter", "org/drafter")]
    with operator.connections() as connections:
        host = connections.to(operator.profile("gpu1", planned.address))
        assert read_weights(Busybox("gpu1"), sources) == read_weights(host, sources)


def test_a_host_whose_gpus_cannot_be_read(planned: Box, operator: Operator) -> None:
    planned.host.write("/etc/rig-nvidia-smi", "9")
    done = operator.ddtree("plan", "gpu1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "host gpu1: the NVIDIA driver is not loaded" in done.stderr


@pytest.fixture
def served(gpu_host: Box, operator: Operator) -> Iterator[Box]:
    """A host with Docker, whose services take a pair of the host's own under /srv/weights."""
    operator.serves("gpu1", gpu_host)
    copied(gpu_host, "/srv/weights")
    model(operator, "/srv/weights/target", "/srv/weights/drafter")
    usual = gpu_host.host.read("/etc/rig-gpus.json")
    yield gpu_host
    gpu_host.host.write("/etc/rig-gpus.json", usual)
    gpu_host.host.run("rm", "-rf", "/srv/weights")


def refused(operator: Operator, box: Box, *words: str) -> str:
    """Before anything was started, in a dry run as in earnest."""
    told = []
    for more in (["--dry-run"], []):
        done = operator.ddtree("deploy", "gpu1", "--model", "mine", "--gpu", "1", *words, *more)
        assert done.returncode == 1, done.stderr
        assert box.host.run("docker", "ps", "-aq") == ""
        told.append(next(x for x in done.stderr.splitlines() if x.startswith("error: ")))
    assert told[0] == told[1]
    return told[0]


def test_a_deploy_is_refused_before_it_starts_anything(served: Box, operator: Operator) -> None:
    shard = "/srv/weights/target/model.safetensors"
    served.host.run("chmod", "640", shard)
    served.host.run("chgrp", "ops", shard)
    operator.declares("services", "ddtree", "container:\n  user: 4321:4321\n")
    assert f"gpu1:{shard}: the container's user 4321 may not read it" in refused(operator, served)
    served.host.run("truncate", "-s", "1000000", shard)
    assert f"gpu1:{shard}: truncated: 1000000 bytes" in refused(operator, served)
    served.host.run("rm", "-rf", "/srv/weights/drafter")
    line = refused(operator, served)
    assert "truncated" in line
    assert "rsync -aL --partial FOLDER/ gpu1:/srv/weights/drafter/" in line


def test_a_deploy_that_memory_does_not_suffice_for_is_refused(
    served: Box, operator: Operator
) -> None:
    small = json.loads(table.table(2))
    small[1]["memory.total"] = "4420"
    served.host.write("/etc/rig-gpus.json", json.dumps(small))
    line = refused(operator, served, "--budget", "256")
    assert "GPU 1 of host gpu1: it does not fit: a budget of 256 keeps 257 recurrent" in line
    assert "`ddtree plan gpu1 --gpu 1` shows what takes how much" in line
    asked = ("--model", "mine", "--gpu", "1", "--budget")
    document, _ = plan(operator, *asked, "256", code=1)
    (device,) = document["devices"]
    best = device["figures"]["largest_budget"]
    assert f"--budget {best}" in line
    fits, _ = plan(operator, *asked, str(best))
    assert fits["devices"][0]["fits"] is True
