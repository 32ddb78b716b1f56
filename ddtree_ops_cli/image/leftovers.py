"""Containers that were left by a command that was killed, or lost its host, in the middle.

The doctor's container says whose it is; the one of a step of a build has the label that the
Dockerfile gives to all but the finished image. Neither is ever removed while somebody may still
want it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..rollout.lock import is_gone, me

if TYPE_CHECKING:
    from ..hosts.docker_api import DockerApi

STAGE_LABEL, BUILD = "dev.ddtree.stage", "build"
"""Of an image: `build` on a layer of a build, `image` on a finished one."""
LOOK_S = 900
"""The longest that a command waits for the doctor in an image."""
_ROLE, _CLIENT, _PID = "dev.ddtree.role", "dev.ddtree.client", "dev.ddtree.client_pid"
_DOCTOR = "doctor"
_AT_REST = ("created", "exited", "dead")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A container that nobody waits for."""

    identity: str
    name: str
    what: str
    """`doctor` or `build step`."""


def doctor_labels() -> dict[str, str]:
    """Of the doctor's container: whose it is."""
    return {_ROLE: _DOCTOR, _CLIENT: me(), _PID: str(os.getpid())}


def leftovers(
    containers: Sequence[Mapping[str, Any]],
    *,
    building: bool,
    now: float,
    gone: Callable[[str, int], bool] = is_gone,
) -> Iterator[Leftover]:
    """Pure but for `gone`: which of a host's containers are left over; `now` by the host's clock.

    The doctor's, if its command has ended, or if it is older than any command waits. A step of a
    build that does not run, if the caller holds the lock for builds (`building`), so that none is
    going on; while it runs it is left alone, since it ends by itself.
    """
    for one in containers:
        labels = one.get("Labels") or {}
        name = str((one.get("Names") or ["?"])[0]).lstrip("/")
        if labels.get(_ROLE) == _DOCTOR:
            pid = labels.get(_PID, "")
            dead = pid.isdigit() and gone(labels.get(_CLIENT, ""), int(pid))
            if dead or now - float(one["Created"]) > LOOK_S + 60:
                yield Leftover(str(one["Id"]), name, _DOCTOR)
        elif building and labels.get(STAGE_LABEL) == BUILD and one["State"] in _AT_REST:
            yield Leftover(str(one["Id"]), name, "build step")


def found(api: DockerApi, *, building: bool) -> tuple[Leftover, ...]:
    """Raises what `DockerApi.asked` raises."""
    with api.asked("list its containers"):
        containers = api.containers(all=True)
    return tuple(leftovers(containers, building=building, now=api.clock.now))


def sweep(api: DockerApi, tell: Callable[[str], None], *, building: bool) -> tuple[Leftover, ...]:
    """Remove them, and say so. Raises what `DockerApi.asked` raises."""
    swept = found(api, building=building)
    for one in swept:
        with api.asked(f"remove container {one.name}"):
            api.remove_container(one.identity, force=True, v=True)
        tell(f"removed container {one.name} ({one.what}), which an earlier command left")
    return swept
