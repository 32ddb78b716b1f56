"""What Docker says of containers, read. Pure."""

from __future__ import annotations

import datetime
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .container import container_name
from .labels import Labels
from .occupancy import Neighbour
from .runtimes import Instance

if TYPE_CHECKING:
    from ..profiles.schema import HostProfile

_KEPT = "-kept-"
_MENDS = {
    "rlimit": "this Docker may not raise that limit: lower container.ulimits of the service",
    "could not select device driver": "restart Docker there: it looks for NVIDIA's runtime when "
    "it starts",
    "unresolvable CDI devices": "there: `sudo nvidia-ctk cdi generate "
    "--output=/etc/cdi/nvidia.yaml`",
    "unknown device": "the GPU is not there any more: see `ddtree hosts facts`",
    "port is already allocated": "another container was faster: choose another with --port",
    "bind source path does not exist": "correct container.mounts of the service",
    "unable to find user": "correct container.user of the service",
    "no space left on device": "make room on its disk: `docker system df` there",
}


@dataclass(frozen=True, slots=True)
class Listed:
    """A container of this toolkit in the list of a host's containers."""

    identity: str
    labels: Labels
    role: Literal["current", "kept"]
    running: bool


def kept_name(gpu: int, identity: str) -> str:
    return f"{container_name(gpu)}{_KEPT}{identity[:12]}"


def own(entry: Mapping[str, Any]) -> Listed | None:
    """An entry of GET /containers/json, if this toolkit started it.

    Both labels and name must say so: a container inherits its image's labels.
    """
    try:
        labels = Labels.from_mapping(entry["Labels"] or {})
    except (KeyError, ValueError):
        return None
    name = _name(entry)
    current = container_name(labels.gpu)
    if name != current and not name.startswith(current + _KEPT):
        return None
    role: Literal["current", "kept"] = "current" if name == current else "kept"
    return Listed(entry["Id"], labels, role, entry["State"] == "running")


def neighbour(entry: Mapping[str, Any]) -> Neighbour:
    """An entry of GET /containers/json as somebody else's."""
    ports = {
        port["PublicPort"]: port.get("IP", "")
        for port in entry.get("Ports") or []
        if port.get("PublicPort")
    }
    return Neighbour(entry["Id"], _name(entry), ports)


def instance(found: Mapping[str, Any], host: HostProfile) -> Instance:
    """The answer of GET /containers/ID/json."""
    labels = Labels.from_mapping(found["Config"]["Labels"])
    state = found["State"]
    kept = found["Name"].lstrip("/") != container_name(labels.gpu)
    alive = how_it_ended(found) is None
    policy = found["HostConfig"]["RestartPolicy"]["Name"] or "no"
    address = host_address(labels.bind)
    address = f"[{address}]" if ":" in address else address
    return Instance(
        labels=labels,
        state="kept" if kept else "running" if alive else "dead",
        identity=f"container {found['Id'][:12]}",
        url=f"http://{address}:{labels.port}",
        started_at=_seconds(state["StartedAt"]),
        argv=tuple(found["Config"]["Cmd"] or ()),
        environment=dict(entry.partition("=")[::2] for entry in found["Config"]["Env"] or ()),
        stopped_at=_seconds(state["FinishedAt"]) if kept else None,
        proven=policy == (labels.restart or "no"),
        tunnel=_tunnel(host, f"{labels.port}:{address}:{labels.port}"),
    )


def how_it_ended(found: Mapping[str, Any]) -> str | None:
    """In words; None while it runs."""
    state = found["State"]
    code = state["ExitCode"]
    if state["Restarting"]:
        return f"it ends again and again, the last time with exit code {code}"
    if state["Running"]:
        return None
    if state["Status"] == "created":
        return "its container was never started"
    if state["OOMKilled"]:
        return f"it was killed, for it took more memory than it may have (exit code {code})"
    meaning = f", signal {code - 128}" if 128 < code < 160 else ""
    said = f": {state['Error']}" if state.get("Error") else ""
    return f"it ended with exit code {code}{meaning}{said}"


def mend_of(refusal: str) -> str | None:
    """What helps where Docker refuses to start a container, by its words."""
    return next((mend for words, mend in _MENDS.items() if words in refusal), None)


def host_address(bind: str) -> str:
    """Where the host itself reaches what listens on `bind`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)


def _tunnel(host: HostProfile, ports: str) -> str:
    """The user's own ssh, by the user's own configuration."""
    login = f"{host.user}@{host.address}" if host.user else str(host.address)
    way = ["-p", str(host.port)] if host.port else []
    return shlex.join(["ssh", "-N", "-L", ports, *way, login])


def _name(entry: Mapping[str, Any]) -> str:
    """Docker lists a container under names of links too; its own has one slash."""
    names = [name.lstrip("/") for name in entry["Names"] if name.count("/") == 1]
    return names[0] if names else str(entry["Id"])[:12]


def _seconds(text: str) -> float:
    """Docker writes nanoseconds, which Python does not read; year 1 is `never`."""
    shorter = re.sub(r"(\.\d{6})\d*", r"\1", text).replace("Z", "+00:00")
    moment = datetime.datetime.fromisoformat(shorter)
    return moment.timestamp() if moment.year > 1 else 0.0
