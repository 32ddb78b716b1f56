"""What `pip install` alone gives: the wheel, in a new environment, from another folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import free_ports

PROJECT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(PROJECT)],
        check=True,
        capture_output=True,
    )
    [built] = out.glob("*.whl")
    return built


def test_the_wheel_carries_profiles_playbooks_docker_patches_and_weights(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for needed in (
        "ddtree_ops_cli/_bundled/profiles/hosts/lab.yaml",
        "ddtree_ops_cli/_bundled/playbooks/deploy.yaml",
        "ddtree_ops_cli/_bundled/docker/",
        "ddtree_ops_cli/_bundled/patches/",
        "ddtree_ops_cli/lab/weights/target/model.safetensors",
        "ddtree_ops_cli/lab/weights/drafter/model.safetensors",
        "ddtree_ops_cli/bench/suites/story.jsonl",
        "ddtree_ops_cli/py.typed",
    ):
        assert any(name.startswith(needed) for name in names), needed


def test_the_wheel_carries_nothing_else(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top.split("-")[0] for top in tops} == {"ddtree_ops_cli", "ddtree_ops"}


def test_the_installed_command_serves_the_lab_from_another_folder(
    wheel: Path, tmp_path: Path
) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    # The bundled lab on ports of this test's own: its usual ones may be in use.
    bundled = (PROJECT / "profiles/hosts/lab.yaml").read_text()
    mine = tmp_path / "config/ddtree/profiles/hosts/lab.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text(bundled.replace("base_port: 31000", f"base_port: {free_ports(4)[0]}"))
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run(
        [tmp_path / "venv/bin/pip", "install", "--quiet", str(wheel)],
        check=True,
        capture_output=True,
    )

    def ddtree(*words: str) -> str:
        done = subprocess.run(
            [tmp_path / "venv/bin/ddtree", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    ddtree("deploy", "lab", "--budget", "16")
    try:
        ddtree("smoke", "lab")
        [service] = json.loads(ddtree("status", "--json"))["lab"]["services"]
        assert (service["health"], service["budget"]) == ("healthy", 16)
    finally:
        ddtree("stop", "lab")
    assert json.loads(ddtree("status", "--json"))["lab"]["services"] == []
