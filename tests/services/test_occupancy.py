"""Facts in, who is in the way out."""

from __future__ import annotations

import pytest

from ddtree_ops_cli.hosts.facts import Listener
from ddtree_ops_cli.hosts.gpus import Gpu, Holder, parse_holders
from ddtree_ops_cli.services.occupancy import Neighbour, gpu_holder, port_holder

OWN, FOREIGN = "a" * 64, "f" * 64
NEIGHBOURS = [Neighbour(FOREIGN, "training", {8000: "0.0.0.0", 30001: "127.0.0.1"})]
OURS = Holder(10, "root", "sglang::scheduler", 71200, OWN)
THEIRS = Holder(20, "eve", "python3", 4000, FOREIGN)
BARE = Holder(30, "bob", "python3", None, None)
UNSEEN = Holder(40, None, "python3", 500, None)


def gpu(*holders: Holder, used: int | None = 4) -> Gpu:
    return Gpu(1, "GPU-1", "RTX", 97887, used, "12.0", "580", None, None, holders)


@pytest.mark.parametrize(
    ("card", "own", "says"),
    [
        (gpu(), (), None),
        (gpu(OURS), (OWN,), None),
        (gpu(OURS), (), "sglang::scheduler of root (pid 10, 71200 MiB) in container aaaaaaaaaaaa"),
        (gpu(THEIRS), (), "python3 of eve (pid 20, 4000 MiB) in container training"),
        (
            gpu(OURS, THEIRS, BARE),
            (OWN,),
            "python3 of eve (pid 20, 4000 MiB) in container training; python3 of bob (pid 30)",
        ),
        (gpu(UNSEEN), (OWN,), None),
        (gpu(UNSEEN), (), "python3 (pid 40, 500 MiB)"),
        (gpu(used=1024), (), None),
        (gpu(used=None), (), None),
        (
            gpu(used=71204),
            (),
            "71204 of 97887 MiB are in use by what nvidia-smi does not name",
        ),
        (gpu(used=71204), (OWN,), None),
    ],
    ids=[
        "idle", "only our own", "ours, which has lost its container", "another container's",
        "one of ours and two of others", "not to be seen, beside ours", "not to be seen",
        "what the driver takes", "a GPU that does not say", "memory without a process",
        "memory of ours",
    ],
)  # fmt: skip
def test_who_computes_on_a_gpu_and_how_much_that_takes(
    card: Gpu, own: tuple[str, ...], says: str | None
) -> None:
    assert gpu_holder(card, own, NEIGHBOURS) == says


@pytest.mark.parametrize(
    ("bind", "port", "says"),
    [
        ("127.0.0.1", 30000, None),
        ("127.0.0.1", 30001, "container training, which this toolkit did not start"),
        ("192.0.2.7", 30001, None),
        ("0.0.0.0", 30001, "container training, which this toolkit did not start"),
        ("127.0.0.1", 8000, "container training, which this toolkit did not start"),
        ("127.0.0.1", 22, "another program listens there"),
        ("127.0.0.1", 5432, None),
        ("0.0.0.0", 5432, "another program listens there"),
        ("127.0.0.1", 30002, "ddtree on GPU 2"),
    ],
)
def test_who_has_a_port(bind: str, port: int, says: str | None) -> None:
    listeners = [Listener("::", 22), Listener("10.0.0.1", 5432), Listener("127.0.0.1", 30002)]
    own = {30002: "ddtree on GPU 2"}
    assert port_holder(bind, port, listeners=listeners, own=own, neighbours=NEIGHBOURS) == says


@pytest.mark.parametrize(
    "groups",
    [
        f"0::/system.slice/docker-{FOREIGN}.scope",
        f"12:devices:/docker/{FOREIGN},11:memory:/docker/{FOREIGN}",
    ],
    ids=["systemd, version 2", "cgroupfs, version 1"],
)
def test_the_control_group_tells_a_process_its_container(groups: str) -> None:
    held = parse_holders("GPU-1, 20, 4000, python3", f"20 eve {groups}\n")
    assert held["GPU-1"] == (THEIRS,)


def test_a_process_outside_of_containers_has_none() -> None:
    held = parse_holders("GPU-1, 30, [N/A], python3", "30 bob 0::/user.slice/user-1000.slice\n")
    assert held["GPU-1"] == (BARE,)
