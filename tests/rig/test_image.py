"""A real build on a real Docker host, without a registry: tried, named, run, listed, pruned."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig import gpus
from tests.rig.conftest import DockerHosts
from tests.rig.image_base import BASE, give_python
from tests.rig.image_site import ACCEPTED, PATCH_SET, Site, inspected, opened, tags, until
from tests.rig.rig import Rig

TAG = "ddtree/sglang:rig"


@pytest.fixture(scope="module")
def site(
    rig: Rig, docker_hosts: DockerHosts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    yield from opened(rig, docker_hosts, tmp_path_factory.mktemp("operator"))


@pytest.fixture(scope="module")
def built(site: Site) -> Any:
    """What `ddtree build` said of the image that most tests look at."""
    done = site.build(TAG)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_plan_says_what_a_build_does_and_changes_nothing(site: Site) -> None:
    tag = "ddtree/sglang:planned"
    done = site("build", "gpu1", "--base", BASE, "--tag", tag, *site.words, "--dry-run")
    assert done.returncode == 0, done.stderr
    sent, build, doctor, name = done.stdout.splitlines()
    assert sent.startswith("send 38")
    assert build == f"build on {BASE} with packages: base, compute capability 12.0a"
    assert f"with GPU 0 ({gpus.uuid(0)}); every blocking check must pass" in doctor
    assert name == f"tag {tag}"
    assert tags(site.gpu1, tag) == []


def test_a_build_is_tagged_and_known_by_its_labels(site: Site, built: Any) -> None:
    image = inspected(site.gpu1, TAG)
    assert built["image"] == image["Id"]
    labels = image["Config"]["Labels"]
    assert labels["dev.ddtree.patch_set"] == PATCH_SET
    assert labels["dev.ddtree.engine"] == "sglang 0.5.17"
    assert labels["dev.ddtree.context"] == built["context"]
    assert labels["org.opencontainers.image.base.name"] == BASE
    assert image["Config"]["User"] == "sglang"
    assert image["Config"]["Healthcheck"]["Test"][-1] == "/opt/ddtree/health.py"
    assert "SGLANG_ENABLE_JIT_DEEPGEMM=0" in image["Config"]["Env"]
    assert "Step 1/" in Path(built["log"]).read_text()
    assert site.gpu1.host.run("docker", "ps", "-aq").strip() == ""


def test_equal_inputs_give_the_same_image_again(site: Site, built: Any) -> None:
    again = json.loads(site.build(TAG).stdout)
    assert (again["context"], again["image"]) == (built["context"], built["image"])


def test_the_image_says_what_it_has_and_ends_with_8_where_it_cannot_run(
    site: Site, built: Any
) -> None:
    script = (
        f"docker run --rm --network none --gpus device=1 {TAG} python3 -V >/tmp/o 2>&1; echo $?; "
        f"cat /tmp/o; docker run --rm --network none -e DDTREE_DOCTOR=off {TAG} id -un"
    )
    code, *said, user = site.gpu1.host.run("sh", "-c", script).splitlines()
    assert code == "8"
    assert said[0].startswith(f"sglang 0.5.17 | patch set {PATCH_SET[:12]} | sglang-kernel 0.4.5")
    assert "RTX PRO 6000 Blackwell Server Edition (sm_12.0)" in said[0]
    assert any("libraries-found" in line for line in said)
    assert user == "sglang"


def started(site: Site, *words: str) -> tuple[int, list[str]]:
    """Exit code and lines of a container of the image that runs `python3 -V`."""
    run = ["docker", "run", "--rm", "--network", "none", *words, TAG, "python3", "-V"]
    script = f"{shlex.join(run)} >/tmp/o 2>&1; echo $?; cat /tmp/o"
    code, *lines = site.gpu1.host.run("sh", "-c", script).splitlines()
    return int(code), lines


def test_the_image_without_a_gpu_says_so_and_can_be_told_to_go_on(site: Site, built: Any) -> None:
    code, lines = started(site)
    assert (code, lines[0].endswith(" | driver - | no GPU")) == (8, True)
    assert "failed      blocking  driver-answers: nvidia-smi (exit code 6): No devices were" in (
        "\n".join(lines)
    )
    assert lines[-1] == (
        "ddtree: the engine is not started (exit code 8); DDTREE_DOCTOR=off starts it anyway"
    )
    code, lines = started(site, "--env", "DDTREE_DOCTOR=off")
    assert (code, lines[0].startswith("Python 3.")) == (0, True)


def test_the_image_on_an_old_driver_names_the_driver_that_it_needs(site: Site, built: Any) -> None:
    """PyTorch is what its metadata says, as far as a look without an import goes."""
    host, site_packages = site.gpu1.host, "/usr/local/lib/python3.13/dist-packages"
    smi = host.run("docker", "run", "--rm", "--entrypoint", "cat", TAG, "/usr/local/bin/nvidia-smi")
    host.write("/root/nvidia-smi", smi.replace("580.95.05", "535.183.01"), mode="755")
    host.run("mkdir", "-p", "/root/torch", "/root/torch.dist-info")
    host.write("/root/torch/version.py", "__version__ = '2.11.0+cu130'\ncuda = '13.0'\n")
    host.write("/root/torch.dist-info/METADATA", "Name: torch\nVersion: 2.11.0\n")
    mounts = {
        "/root/nvidia-smi": "/usr/local/bin/nvidia-smi",
        "/root/torch": f"{site_packages}/torch",
        "/root/torch.dist-info": f"{site_packages}/torch-2.11.0.dist-info",
    }
    words = [f"--volume={here}:{there}:ro" for here, there in mounts.items()]
    code, lines = started(site, "--gpus", "device=1", *words)
    host.run("rm", "-r", *mounts)
    assert code == 8
    assert "torch 2.11.0+cu130 (CUDA 13.0)" in lines[0]
    [told] = [line for line in lines if "driver-cuda" in line]
    assert told.endswith("driver-cuda: driver 535.183.01; CUDA 13.0 needs 580.65.06 or newer")


_SERVER = """
import http.server, os
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if os.path.exists("/tmp/loading") else 200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", 31555), Health).serve_forever()
"""


def test_dockers_health_check_asks_the_engine_on_its_port(site: Site, built: Any) -> None:
    host = site.gpu1.host

    def health() -> str:
        return host.run("docker", "inspect", "-f", "{{.State.Health.Status}}", "health").strip()

    quick = ["--health-interval=1s", "--health-start-period=0s", "--health-retries=1"]
    run = ["docker", "run", "-d", "--name", "health", "--network", "none", *quick]
    host.run(*run, "-e", "DDTREE_DOCTOR=off", TAG, "python3", "-c", _SERVER, "--port", "31555")
    try:
        until(lambda: health() == "healthy", "the container is healthy")
        host.run("docker", "exec", "health", "touch", "/tmp/loading")
        until(lambda: health() == "unhealthy", "the container is unhealthy")
        host.run("docker", "exec", "health", "rm", "/tmp/loading")
        until(lambda: health() == "healthy", "the container is healthy again")
    finally:
        host.run("docker", "rm", "-f", "health")


def test_a_base_that_cannot_be_had_is_named_with_what_brings_it(site: Site) -> None:
    done = site("build", "gpu1", "--packages", "base", *site.words[2:], "--tag", "ddtree/sglang:x")
    assert done.returncode == 1
    assert re.search(r"the build failed at step 2/\d+ \(FROM \$\{BASE\} AS system\): ", done.stderr)
    assert "see whether the host can pull nvidia/cuda:13.0.2-cudnn-devel-ubuntu24.04, or take " in (
        done.stderr
    )
    assert "Traceback" not in done.stderr


def test_an_image_with_a_blocking_fault_is_not_tagged(site: Site, built: Any) -> None:
    tag = "ddtree/sglang:faulty"
    done = site.build(tag, accept=[check for check in ACCEPTED if check != "libraries-found"])
    assert done.returncode == 8
    assert "the image is not tagged: libraries-found: " in done.stderr
    assert "libc10.so" in done.stderr
    assert tags(site.gpu1, tag) == []
    # Equal inputs made the very image that has a name already: it stays.
    assert inspected(site.gpu1, TAG)["Id"] == built["image"]
    assert site.gpu1.host.run("docker", "ps", "-aq").strip() == ""


def test_a_build_that_fails_in_the_middle_shows_its_last_lines_and_tags_nothing(
    site: Site,
) -> None:
    tag, broken = "ddtree/sglang:broken", "ddtree-rig/base:broken"
    recipe = f"FROM {BASE}\\nRUN rm -f /usr/bin/python3*\\n"
    site.gpu1.host.run("sh", "-c", f"printf '{recipe}' | docker build -t {broken} -")
    done = site.build(tag, base=broken)
    site.gpu1.host.run("docker", "rmi", "-f", broken)
    assert done.returncode == 1
    *before, last = done.stderr.splitlines()
    assert re.match(
        r"error: host gpu1: the build failed at step \d+/\d+ \(RUN .*\): The command ", last
    )
    assert any(line.startswith("  ") and "python3: not found" in line for line in before)
    assert "Traceback" not in done.stderr
    assert tags(site.gpu1, tag) == []


def test_a_base_for_another_architecture_is_refused_before_anything_is_sent(site: Site) -> None:
    foreign = "ddtree-rig/base:arm"
    make = f"tar -c -T /dev/null | docker import --platform linux/arm64 - {foreign}"
    site.gpu1.host.run("sh", "-c", make)
    done = site.build("ddtree/sglang:arm", base=foreign)
    site.gpu1.host.run("docker", "rmi", foreign)
    assert done.returncode == 1
    assert f"the base {foreign} is for arm64; the host is amd64" in done.stderr


def test_a_host_without_docker_is_one_line(site: Site, rig: Rig) -> None:
    plain = rig.boot("plain")
    rig.connect(None, plain, "10.77.24")
    operator, gpu1, gpu2 = site.operator, site.gpu1, site.gpu2
    known = [(box.address, box.host) for box in (gpu1, gpu2)]
    operator.knows(*known, ("10.77.24.2", plain))
    operator.profile("plain", "10.77.24.2")
    for words in (("build", "plain", *site.words), ("image", "list", "plain")):
        done = site(*words)
        assert done.returncode == 1
        assert "host plain: Docker is not running" in done.stderr
        assert "Traceback" not in done.stderr


def test_an_image_that_is_not_there_is_one_line(site: Site) -> None:
    absent = site("image", "lock", "gpu2", "--image", "ddtree/sglang:none")
    assert absent.returncode == 1
    assert "image ddtree/sglang:none is not there" in absent.stderr
    assert absent.stderr.count("\n") == 1


def test_the_doctor_sees_a_host_and_a_python_without_its_library_is_named(
    site: Site, built: Any, rig: Rig
) -> None:
    bare = site("doctor", "gpu2", "--json")
    assert bare.returncode == 1
    assert "the doctor did not run there" in bare.stderr
    assert "(Debian: python3, not python3-minimal)" in bare.stderr

    give_python(rig, site.gpu1.host)
    done = site("doctor", "gpu1", "--image", TAG, "--json")
    assert done.returncode == 8, done.stderr
    host, inside = json.loads(done.stdout)["places"]
    states = {finding["id"]: finding["state"] for finding in host["findings"]}
    assert states["driver-answers"] == states["attention-backend"] == "passed"
    assert states["kernel-images"] == "not checked"
    assert inside["place"] == f"image {TAG} on host gpu1"
    states = {finding["id"]: finding["state"] for finding in inside["findings"]}
    for check in ("driver-answers", "gpu-pinned", "kernel-images", "patch-set", "not-root"):
        assert states[check] == "passed", check
    failed = {f["id"] for f in inside["findings"] if f["state"] == "failed"}
    assert set(ACCEPTED) <= failed


def test_the_exported_doctor_says_on_a_host_by_itself_what_the_command_says_of_it(
    site: Site, rig: Rig, tmp_path: Path
) -> None:
    """By hand, with nothing but the host's own Python."""
    file = tmp_path / "doctor.py"
    assert site("doctor", "--service", "ddtree", "--export", str(file)).returncode == 0
    bare = "python3 -S -I /tmp/doctor.py --json 2>&1; echo $?"
    for box in (site.gpu1, site.gpu2):
        box.host.write("/tmp/doctor.py", file.read_text())
    said, code = site.gpu2.host.run("su", "ops", "-c", bare).splitlines()  # python3-minimal
    assert (said.partition(" library: ")[0], code) == (
        "ddtree doctor: this Python lacks a part of its standard",
        "1",
    )
    give_python(rig, site.gpu1.host)
    *lines, code = site.gpu1.host.run("su", "ops", "-c", bare).splitlines()
    alone = json.loads("\n".join(lines))["findings"]
    remote = json.loads(site("doctor", "gpu1", "--json").stdout)["places"][0]
    states = {f["id"]: f["state"] for f in remote["findings"]}
    assert {f["id"]: f["state"] for f in alone} == states
    assert len(states) >= 20
    assert code == ("8" if remote["blocked"] else "0")


def test_images_are_listed_and_those_that_nothing_names_or_uses_are_pruned(
    site: Site, built: Any
) -> None:
    host = site.gpu1.host

    def pruned() -> list[str]:
        done = site("image", "prune", "gpu1", "--json")
        return [image["identity"] for image in json.loads(done.stdout)["images"]]

    listed = json.loads(site("image", "list", "gpu1", "--json").stdout)
    mine = next(image for image in listed if TAG in image["tags"])
    assert (mine["engine"], mine["patch_set"], mine["in_use"]) == (
        "sglang 0.5.17",
        PATCH_SET,
        False,
    )
    assert built["image"] not in pruned()
    used = host.run("docker", "create", TAG).strip()
    host.run("docker", "tag", BASE, TAG)  # as a newer build takes its name
    assert built["image"] not in pruned()
    host.run("docker", "rm", used)
    assert built["image"] in pruned()
    left = json.loads(site("image", "list", "gpu1", "--json").stdout)
    assert built["image"] not in {image["identity"] for image in left}

    dry = site("image", "prune", "gpu1", "--cache", "--dry-run", "--json")
    cached = {layer["identity"] for layer in json.loads(dry.stdout)["layers"]}
    kept = host.run("docker", "images", "-q", "--no-trunc", "--filter", "dangling=true").split()
    assert cached
    assert cached <= set(kept)
    site("image", "prune", "gpu1", "--cache")
    kept = host.run("docker", "images", "-q", "--no-trunc", "--filter", "dangling=true").split()
    assert cached.isdisjoint(kept)
    assert tags(site.gpu1, BASE) == [BASE]


def test_nothing_is_pruned_while_somebody_builds(site: Site) -> None:
    host, lock = site.gpu1.host, "/home/ops/.local/state/ddtree/locks/build"
    holder = '{"pid":1,"since":"now","who":"ann@desk","purpose":"build x","client_pid":1}\n'
    host.run("sh", "-c", f"mkdir -p {lock.removesuffix('/build')}; chown -R ops /home/ops/.local")
    host.write(lock, holder, mode="666")
    host.run("sh", "-c", f"setsid flock {lock} sleep 20 >/dev/null 2>&1 & sleep 0.5")
    done = site("image", "prune", "gpu1")
    assert done.returncode == 5
    assert "the lock build is held by ann@desk, build x, since now" in done.stderr
    assert site("image", "prune", "gpu1", "--dry-run").returncode == 0
