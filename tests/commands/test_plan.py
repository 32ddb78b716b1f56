"""`ddtree plan` as it is called."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import safetensors

from tests.commands.conftest import write
from tests.conftest import Ddtree


def test_the_lab_is_planned_into_this_machine(ddtree: Ddtree) -> None:
    done = ddtree("plan", "lab")
    assert (done.returncode, done.stderr) == (0, "")
    assert "weights of the target" in done.stdout
    assert "requests at once" in done.stdout
    document = json.loads(ddtree("plan", "lab", "--json").stdout)
    (device,) = document["devices"]
    assert device["fits"] is True
    file = Path(document["weights"]["target"]["directory"]) / "model.safetensors"
    with safetensors.safe_open(file, "numpy") as tensors:
        numbers = sum(math.prod(tensors.get_slice(k).get_shape()) for k in tensors.keys())  # noqa: SIM118
    assert device["items"]["weights_of_the_target"] == numbers * 4
    assert sum(device["items"].values()) == device["capacity"]
    assert document["weights"]["target"]["directory"].endswith("lab/weights/target")


def test_a_longer_context_takes_more(ddtree: Ddtree) -> None:
    sizes = []
    for context in ("128", "1024"):
        done = ddtree("plan", "lab", "--context", context, "--json")
        items = json.loads(done.stdout)["devices"][0]["items"]
        sizes.append(items["keys_and_values"])
    assert sizes[1] == 8 * sizes[0]


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("nowhere",), 2, "no host 'nowhere'"),
        (("lab", "--gpu", "9"), 2, "host lab: no GPU 9; there is: 0, 1, 2, 3"),
        (("lab", "--budget", "0"), 2, "--budget"),
        (("lab", "--service", "plain", "--budget", "8"), 2, "--budget is for a tree"),
        (("ct200",), 2, "is a template"),
    ],
)
def test_what_cannot_be_planned(
    ddtree: Ddtree, words: tuple[str, ...], code: int, what: str
) -> None:
    done = ddtree("plan", *words)
    assert done.returncode == code
    assert what in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_weights_that_are_not_there_yet(ddtree: Ddtree, tmp_path: Path) -> None:
    models = ddtree.home / ".config/ddtree/profiles/models"
    write(
        models / "far.yaml",
        f"description: far\ntarget: {tmp_path}/target\ndrafter: org/drafter\nserved_name: far\n"
        "context_length: 512\nblock_size: 16\nhybrid: true\n",
    )
    done = ddtree("plan", "lab", "--model", "far")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert f"the target {tmp_path}/target does not exist" in line
    assert "hf download org/drafter" in line


def test_config_and_index_are_enough_for_the_figures(
    tiny: Ddtree, random_pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """What `hf download --include '*.json'` brings, before the weights."""
    for folder in random_pair:
        (tmp_path / folder.name).mkdir()
        config = (folder / "config.json").read_text()
        (tmp_path / folder.name / "config.json").write_text(config)
    index = tmp_path / "target/model.safetensors.index.json"
    shards = {"model.norm.weight": "model-00001-of-00015.safetensors"}
    index.write_text(json.dumps({"metadata": {"total_size": 12345}, "weight_map": shards}))
    write(
        tiny.home / ".config/ddtree/profiles/models/tiny-pair.yaml",
        f"description: tiny\ntarget: {tmp_path}/target\ndrafter: {tmp_path}/drafter\n"
        "served_name: tiny-pair\ncontext_length: 512\nblock_size: 16\nhybrid: true\n",
    )
    done = tiny("plan", "tiny", "--json")
    assert done.returncode == 1
    assert "1 of 1 weight files are missing: model-00001-of-00015.safetensors" in done.stderr
    assert json.loads(done.stdout)["devices"][0]["fits"] is True
