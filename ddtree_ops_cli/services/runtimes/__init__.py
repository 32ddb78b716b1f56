"""Where a service runs: the operations that every runtime offers.

`process` runs the lab on this machine. Real hosts run containers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from ..labels import Labels
from ..spec import ServiceSpec

if TYPE_CHECKING:
    from ...hosts.clock import Clock
    from ...hosts.connection import Connections
    from ...hosts.state import HostState
    from ...profiles.load import Loaded
    from ...profiles.schema import HostProfile
    from ..container import Container


@dataclass(frozen=True, slots=True)
class Instance:
    """A service that was started on a host, as the host itself remembers it."""

    labels: Labels
    state: Literal["running", "dead", "kept"]
    """Kept: stopped on purpose, and there to be started again."""
    identity: str
    """What the host calls it: `pid 4711`, or a container's id."""
    url: str
    """Where the host itself reaches the engine; `Runtime.reach` does from this machine."""
    started_at: float
    """Seconds since the epoch, by the host's clock."""
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """What was added to the environment for it."""
    stopped_at: float | None = None
    """When a kept one was stopped, in seconds since the epoch by the host's clock."""
    proven: bool = True
    """Whether the deploy that started it came to its end."""
    tunnel: str | None = None
    """The command that brings `url` to this machine; None if it is here already."""

    @property
    def title(self) -> str:
        return f"{self.labels.service} on GPU {self.labels.gpu}"


@dataclass(frozen=True, slots=True)
class Launch:
    """How a service would be started: all of it is decided, nothing is done."""

    engine: str
    """`lab` or `sglang`, with the version."""
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    container: Container | None = None


class Runtime(Protocol):
    """The services of one host."""

    @property
    def gpus(self) -> int:
        """How many GPUs, or places numbered like them, the host has."""
        ...

    def kinds(self) -> Mapping[int, str]:
        """What each GPU is, in words that are equal for equal ones."""
        ...

    @property
    def clock(self) -> Clock:
        """The host's: how long ago something was there is reckoned by it."""
        ...

    state: HostState
    """Where the host keeps its locks and its audit log."""

    def held(self) -> Mapping[int, str]:
        """The GPUs on which something computes that this toolkit did not start, and what."""
        ...

    def launch(self, spec: ServiceSpec) -> Launch:
        """Raises DdtreeError for what the host does not have: the image, access to its GPUs."""
        ...

    def instances(self) -> list[Instance]:
        """What this toolkit started on each GPU and did not stop, by GPU; dead ones too."""
        ...

    def kept(self) -> list[Instance]:
        """What was stopped and can be started again, the latest first."""
        ...

    def reach(self, instance: Instance) -> str:
        """A URL of the engine for this machine, good while the connection lasts."""
        ...

    def check(self, spec: ServiceSpec) -> None:
        """Raises what the engine would refuse only once it starts: weights, budget."""
        ...

    def port_holder(self, bind: str, port: int) -> str | None:
        """Who listens on this port, in words; None if it is free."""
        ...

    def start(self, labels: Labels, launch: Launch) -> Instance: ...

    def settle(self, instance: Instance) -> None:
        """It is proven: from now on the host may start it again when it ends."""
        ...

    def retire(self, instance: Instance, *, grace_s: float) -> None:
        """End the service with all its processes; keep what it takes to start it again."""
        ...

    def revive(self, instance: Instance) -> Instance:
        """Start a kept service again, as it was."""
        ...

    def remove(self, instance: Instance, *, grace_s: float) -> None:
        """End the service if it runs, and forget it, its log included."""
        ...

    def ended(self, instance: Instance) -> str | None:
        """How it ended, in words; None while it runs."""
        ...

    def log_lines(self, gpu: int, *, last: int, follow: bool) -> Iterator[str]:
        """The last lines of the log of the service on this GPU, then what is added to it.

        Without one, of the one that was stopped last.
        """
        ...


def open_runtime(host: Loaded[HostProfile], connections: Connections) -> Runtime:
    """Nothing is connected to before the first question."""
    if host.value.runtime == "process":
        from .process import ProcessRuntime

        return ProcessRuntime(host.name, gpus=host.value.gpus or 1)
    from .docker import DockerRuntime

    return DockerRuntime(host, connections.to(host))
