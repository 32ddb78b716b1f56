"""Where a service runs: the operations that every runtime offers.

`process` runs the lab on this machine. Real hosts run containers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from ...errors import DdtreeError
from ..labels import Labels
from ..spec import ServiceSpec

if TYPE_CHECKING:
    from ...hosts.connection import Connections
    from ...hosts.state import HostState
    from ...profiles.load import Loaded
    from ...profiles.schema import HostProfile


@dataclass(frozen=True, slots=True)
class Instance:
    """A service that was started on a host, as the host itself remembers it."""

    labels: Labels
    state: Literal["running", "dead", "kept"]
    """Kept: stopped on purpose, and there to be started again."""
    identity: str
    """What the host calls it: `pid 4711`, or a container's id."""
    url: str
    """Where the engine is reached from this machine."""
    started_at: float
    """Seconds since the epoch."""
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """What was added to the environment for it."""
    stopped_at: float | None = None
    """When a kept one was stopped, in seconds since the epoch."""

    @property
    def title(self) -> str:
        return f"{self.labels.service} on GPU {self.labels.gpu}"


class Runtime(Protocol):
    """The services of one host."""

    gpus: int
    """How many GPUs, or places numbered like them, the host has."""
    state: HostState
    """Where the host keeps its locks and its audit log."""

    @property
    def engine(self) -> str:
        """What it starts: `lab` or `sglang`, with the version."""
        ...

    def command(self, spec: ServiceSpec) -> tuple[str, ...]:
        """The words that start the engine for this spec."""
        ...

    def instances(self) -> list[Instance]:
        """What this toolkit started on each GPU and did not stop, by GPU; dead ones too."""
        ...

    def kept(self) -> list[Instance]:
        """What was stopped and can be started again, the latest first."""
        ...

    def check(self, spec: ServiceSpec) -> None:
        """Raises what the engine would refuse only once it starts: weights, budget."""
        ...

    def port_holder(self, bind: str, port: int) -> str | None:
        """Who listens on this port, in words; None if it is free."""
        ...

    def start(
        self, labels: Labels, argv: Sequence[str], environment: Mapping[str, str]
    ) -> Instance: ...

    def retire(self, instance: Instance, *, grace_s: float) -> None:
        """End the service with all its processes; keep what it takes to start it again."""
        ...

    def revive(self, instance: Instance) -> Instance:
        """Start a kept service again, as it was."""
        ...

    def remove(self, instance: Instance, *, grace_s: float) -> None:
        """End the service if it runs, and forget it, its log included."""
        ...

    def alive(self, instance: Instance) -> bool: ...

    def log_lines(self, gpu: int, *, last: int, follow: bool) -> Iterator[str]:
        """The last lines of the log of the service on this GPU, then what is added to it.

        Without one, of the one that was stopped last.
        """
        ...


def open_runtime(host: Loaded[HostProfile], connections: Connections | None = None) -> Runtime:
    if host.value.runtime == "process":
        from .process import ProcessRuntime

        return ProcessRuntime(host.name, gpus=host.value.gpus or 1)
    raise DdtreeError(
        "this version serves the runtime process only; containers come with a later one",
        where=f"host {host.name}",
        mend="try everything on this machine with the host lab",
    )
