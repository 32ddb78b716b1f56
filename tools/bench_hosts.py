"""What real hosts cost: `ddtree status` over eight against one, and a deploy that changes nothing.

The hosts are those of `make test-rig`, so this needs root and what the rig needs; elsewhere the
rows say so. Run by itself as `relay HOST PORT FILE` it is a ProxyCommand that counts how often this
side spoke after the host had: the round trips of a connection, whatever the load of the machine.
"""

from __future__ import annotations

import os
import select
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.rig.conftest import Box, Operator

Row = tuple[str, str, str]

HOSTS = 8
REPEATS = 5
_AIM = "<= 2 x"


def hosts() -> list[Row]:
    """Measured on rig hosts, or a row that says why not."""
    from tests.rig.rig import control_hierarchies, missing_tools

    if os.geteuid() != 0 or missing_tools() or not control_hierarchies():
        why = "not measured: needs root and the rig's tools (see make test-rig)"
        return [(f"ddtree status, {HOSTS} hosts against one", why, _AIM)]
    from tests.conftest import Ddtree
    from tests.rig import images
    from tests.rig.conftest import DockerHosts, Operator
    from tests.rig.rig import Rig

    rig = Rig(Path(os.environ.get("DDTREE_RIG", "/var/tmp/ddtree-rig")))
    try:
        boot = DockerHosts(rig, images.built(rig))
        boxes = [boot(f"h{n}", f"10.77.{100 + n}", access="gpus") for n in range(HOSTS)]
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            (home / ".ssh").mkdir()
            xdg = {"XDG_CONFIG_HOME": home / ".config", "XDG_STATE_HOME": home / ".local/state"}
            environment = {"HOME": folder, **{key: str(path) for key, path in xdg.items()}}
            operator = Operator(home, Ddtree(home, environment), rig.key)
            return [*_status(operator, boxes), *_unchanged(operator, boxes[0])]
    finally:
        rig.down()


def _status(operator: Operator, boxes: list[Box]) -> list[Row]:
    operator.configure()
    operator.knows(*[(box.address, box.host) for box in boxes])
    for number, box in enumerate(boxes):
        operator.profile(f"h{number}", box.address, "groups: [all]\n")
    times: dict[str, list[float]] = {"one": [], "all": []}
    before = [box.host.logins() for box in boxes]
    for _ in range(REPEATS):
        times["one"].append(_seconds(operator, "status", "h0"))
        times["all"].append(_seconds(operator, "status"))
    logins = [box.host.logins() - then for box, then in zip(boxes, before, strict=True)]
    one, every = (statistics.median(times[which]) for which in ("one", "all"))
    # The first host was visited twice in each round.
    each = (sum(logins) - REPEATS) / (REPEATS * len(boxes))
    return [
        (
            f"ddtree status, {len(boxes)} hosts against one",
            f"{every:.2f} s against {one:.2f} s, {every / one:.2f} x",
            _AIM,
        ),
        ("connections to a host for it", f"{each:g}", "1"),
    ]


def _unchanged(operator: Operator, box: Box) -> list[Row]:
    operator.serves("h0", box)
    deploy = ("deploy", "h0", "--gpu", "1")
    _seconds(operator, *deploy)
    times = [_seconds(operator, *deploy) for _ in range(REPEATS)]
    turns = operator.home / "turns"
    relay = f"{sys.executable} {Path(__file__).resolve()} relay %h %p {turns}"
    # Without keep-alives, which are turns too.
    calm = "ServerAliveInterval 600\n"
    operator.configure(f"Host *\nProxyCommand {relay}\n{calm}", fast=False)
    _seconds(operator, *deploy)
    return [
        ("a deploy that changes nothing", f"{statistics.median(times):.2f} s", ""),
        ("round trips of it, login included", turns.read_text().strip(), ""),
    ]


def _seconds(operator: Operator, *words: str) -> float:
    begin = time.monotonic()
    done = operator.ddtree(*words)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return time.monotonic() - begin


def _relay(address: str, port: int, file: Path) -> None:
    host = socket.create_connection((address, port))
    count = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    turns, host_spoke = 0, True
    while True:
        ready, _, _ = select.select([0, host], [], [])
        if host in ready:
            data = host.recv(1 << 16)
            if not data:
                break
            os.write(1, data)
            host_spoke = True
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if not data:
                break
            turns += host_spoke
            host_spoke = False
            host.sendall(data)
        # Ended without a word, as ProxyCommands are, it leaves the latest count.
        os.pwrite(count, f"{turns:8}".encode(), 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["relay"]:
        _relay(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
    else:
        print(*hosts(), sep="\n")
