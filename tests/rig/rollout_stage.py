"""A rig host on which a rollout is broken off, looked at past the toolkit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ddtree_ops_cli.rollout.lock import me
from tests.rig import images
from tests.rig.conftest import Box, Operator
from tests.rig.rig import Rig
from tests.rollout.broken_off import on, tell

GPU = 1
FOREIGN = "somebodys-job"
STATE = "/home/ops/.local/state"
LOG = f"{STATE}/ddtree/audit.jsonl"
CONTAINERS = "/var/lib/docker/containers"
_BUDGETS = (8, 12)
_AGREE_S = 30.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A container of the toolkit, as Docker and the engine themselves tell it."""

    identity: str
    kept: bool
    budget: int
    running: bool
    settled: bool
    """Docker starts it again when it ends."""
    generates: bool
    stopped_at: str

    @property
    def well(self) -> bool:
        return self.running and self.settled and self.generates


@dataclass(frozen=True, slots=True)
class Scene:
    """Before the command that is broken off."""

    words: list[str]
    old: Seen | None
    wanted: Seen | None
    """The kept one of a rollback."""
    earlier: frozenset[str]
    """The identities of what is kept."""
    budget: int
    """Of what `ddtree deploy` shall bring, now and after the fault."""
    foreign: tuple[Any, ...]


class Stage:
    def __init__(self, operator: Operator, box: Box, rig: Rig) -> None:
        self.operator, self.box, self.rig = operator, box, rig
        self.host, self.ddtree = box.host, operator.ddtree

    def clear(self) -> None:
        """Nothing of the toolkit; somebody else's container, which starts with the host."""
        self.host.run("sh", "-c", "docker ps -aq | xargs -r docker rm -f -v")
        self.host.run(
            "docker", "run", "-d", "--name", FOREIGN, "--network=none", "--restart=always",
            "--entrypoint", "sleep", images.ENGINE, "86400",
        )  # fmt: skip

    def set_up(self, playbook: str) -> Scene:
        """What makes this playbook the one that the command follows.

        What an earlier cell left is taken if it fits: each cell ends in a healthy service.
        """
        if not self.host.run("docker", "ps", "-q", "--filter", f"name=^{FOREIGN}$"):
            self.clear()
        found = self.look()
        current = [one for one in found if not one.kept]
        unfit = playbook == "deploy" or not all(one.well for one in current)
        self._forget(found if unfit else self._spare(found))
        if playbook != "deploy":
            self._run_to(playbook)
        found = self.look()
        old = next((one for one in found if not one.kept), None)
        kept = next((one for one in found if one.kept), None)
        budget = next(b for b in _BUDGETS if old is None or b != old.budget)
        words = {"rollback": ("rollback",), "stop": ("stop",)}
        command = words.get(playbook, ("deploy", "--budget", str(budget)))
        return Scene(
            on("ct", command, GPU),
            old,
            kept if playbook == "rollback" else None,
            frozenset(one.identity for one in found if one.kept),
            budget,
            self.foreign(),
        )

    def _spare(self, found: list[Seen]) -> list[Seen]:
        """The kept ones but the latest, and that one too if it is like what runs."""
        running = [one.budget for one in found if not one.kept]
        kept = sorted((one for one in found if one.kept), key=lambda one: one.stopped_at)
        return [one for one in kept if one is not kept[-1] or one.budget in running]

    def _run_to(self, playbook: str) -> None:
        if not any(not one.kept for one in self.look()):
            tell(self.ddtree, *on("ct", ("deploy", "--budget", str(_BUDGETS[0])), GPU))
        if playbook == "rollback" and not any(one.kept for one in self.look()):
            [running] = self.look()
            budget = next(b for b in _BUDGETS if b != running.budget)
            tell(self.ddtree, *on("ct", ("deploy", "--budget", str(budget)), GPU))

    def _forget(self, these: list[Seen]) -> None:
        if these:
            self.host.run("docker", "rm", "-f", "-v", *(one.identity for one in these))

    def look(self) -> list[Seen]:
        found = []
        for one in self._inspected():
            labels = one["Config"]["Labels"]
            if "dev.ddtree.gpu" not in labels or one["Name"] == f"/{FOREIGN}":
                continue
            kept, running = "-kept-" in one["Name"], one["State"]["Running"]
            found.append(
                Seen(
                    one["Id"][:12],
                    kept,
                    int(labels["dev.ddtree.budget"]),
                    running,
                    one["HostConfig"]["RestartPolicy"]["Name"] == labels["dev.ddtree.restart"],
                    running and not kept and self._generates(labels["dev.ddtree.port"]),
                    one["State"]["FinishedAt"],
                )
            )
        return found

    def _inspected(self) -> list[dict[str, Any]]:
        listed = self.host.run("sh", "-c", "docker ps -aq | xargs -r docker inspect")
        found: list[dict[str, Any]] = json.loads(listed or "[]")
        return found

    def _generates(self, port: str) -> bool:
        url = f"http://127.0.0.1:{port}/health_generate"
        asked = f"busybox wget -q -T 10 -O /dev/null {url} && echo yes"
        return bool(self.host.run("sh", "-c", asked, check=False).strip())

    def foreign(self) -> tuple[Any, ...]:
        """All that a toolkit could have done to what is not its own."""
        others = [one for one in self._inspected() if one["Name"] == f"/{FOREIGN}"]
        made = self.host.run("docker", "images", "-aq", "--no-trunc").split()
        return (
            [(o["Id"], o["Created"], o["HostConfig"]["RestartPolicy"]["Name"]) for o in others],
            sorted(set(made)),
        )

    def foreign_runs_since(self) -> str:
        [one] = [one for one in self._inspected() if one["Name"] == f"/{FOREIGN}"]
        assert one["State"]["Running"], one["State"]
        return str(one["State"]["StartedAt"])

    def status(self) -> dict[str, Any]:
        """What `ddtree status` says, once it is what the host says: an engine may be starting."""

        def agree() -> dict[str, Any] | str:
            told: dict[str, Any] = tell(self.ddtree, "status", "ct")["ct"]
            says = [
                (s["identity"], s["budget"], s["state"] == "running", s["health"] == "healthy")
                for s in told["services"]
            ]
            seen = [
                (f"container {one.identity}", one.budget, one.running, one.generates)
                for one in self.look()
                if not one.kept
            ]
            return told if says == seen else f"status says {says}, the host {seen}"

        return self._soon(agree)

    def lock(self) -> str:
        """`free`, or who has it; as `ddtree lock show` and flock(1) on the host say."""

        def agree() -> dict[str, Any] | str:
            told = {lock["name"]: lock for lock in tell(self.ddtree, "lock", "show", "ct")}
            mine: dict[str, Any] = told[f"gpu-{GPU}"]
            free = self.is_lock_free()
            return mine if mine["held"] != free else f"lock show says {mine}, free: {free}"

        mine = self._soon(agree)
        if not mine["held"]:
            return "free"
        assert mine["who"] == me(), mine
        assert mine["purpose"], mine
        return f"held: {mine['purpose']}"

    def is_lock_free(self) -> bool:
        file = f"{STATE}/ddtree/locks/gpu-{GPU}"
        return "yes" in self.host.run("sh", "-c", f"flock -s -n {file} echo yes", check=False)

    def last_run(self) -> list[dict[str, Any]]:
        """The events of the run that was begun last, as they stand in the file."""
        lines = [json.loads(line) for line in self.host.read(LOG).splitlines() if line.strip()]
        last = [line["run"] for line in lines if line["kind"] == "begin"][-1]
        return [line for line in lines if line["run"] == last]

    def broken_run(self, scene: Scene) -> dict[str, Any]:
        """The last run as `ddtree history` tells it, which is how the file has it."""
        run: dict[str, Any] = tell(self.ddtree, "history", "ct")[-1]
        assert run["events"] == self.last_run()
        assert (run["who"], run["gpu"]) == (me(), GPU)
        assert run["command"] == f"{scene.words[0]} ct"
        return run

    def told(self, scene: Scene) -> tuple[dict[str, Any], str, dict[str, Any]]:
        """Status, lock and the broken run, by three commands at once."""
        with ThreadPoolExecutor() as pool:
            status, lock = pool.submit(self.status), pool.submit(self.lock)
            run = pool.submit(self.broken_run, scene)
            return status.result(), lock.result(), run.result()

    def _soon(self, ask: Callable[[], dict[str, Any] | str]) -> dict[str, Any]:
        deadline = time.monotonic() + _AGREE_S
        while True:
            got = ask()
            if isinstance(got, dict):
                return got
            assert time.monotonic() < deadline, got
            time.sleep(0.3)

    def small_disks(self) -> None:
        """The audit log and Docker's containers get small disks, with what they have."""
        self.host.stop_docker()
        for place, size in ((STATE, "2m"), (CONTAINERS, "1m")):
            self._shell(
                f"cp -a {place} /run/saved && mount -t tmpfs -o size={size} full {place}"
                f" && cp -a /run/saved/. {place}/ && rm -r /run/saved"
            )
        self.host.start_docker()

    def fill_disks(self) -> None:
        # A page that has room already would take a line more.
        page = f"head -c $((4096 - $(stat -c %s {LOG}) % 4096)) /dev/zero"
        self._shell(f"{page} | tr '\\0' ' ' >>{LOG}")
        for place in (f"{STATE}/ddtree", CONTAINERS):
            self.host.run("sh", "-c", f"cat /dev/zero >{place}/filler", check=False)

    def make_room(self) -> None:
        self._shell(f"rm -f {STATE}/ddtree/filler {CONTAINERS}/filler")

    def large_disks(self) -> None:
        """As they were, with what the small ones have now."""
        self.make_room()
        self.host.stop_docker()
        for place in (STATE, CONTAINERS):
            self._shell(
                f"cp -a {place} /run/saved && umount -l {place} && cd {place}"
                " && for one in *; do [ -e /run/saved/$one ] || rm -rf $one; done"
                f" && cp -a /run/saved/. {place}/ && rm -r /run/saved"
            )
        self.host.start_docker()

    def restore(self) -> None:
        """After a cell that did not end well: the host whole, and nothing of the toolkit."""
        if self.host.leader.poll() is not None:
            self.host.off()
            self.power_on()
        self.rig.plug(self.box.cable, up=True)
        self._shell(f"while umount -l {STATE} || umount -l {CONTAINERS}; do :; done 2>/dev/null")
        self._shell("kill $(cat /run/docker.pid); rm -f /run/docker.pid; sleep 1; true")
        self.host.start_docker()
        self.clear()

    def power_on(self) -> None:
        network = self.box.address.rsplit(".", 1)[0]
        self.box.cable = self.rig.boot_again(self.host, None, network)
        self.host.await_docker()

    def _shell(self, script: str) -> None:
        self.host.run("sh", "-c", script)
