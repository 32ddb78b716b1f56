"""The runtime of real hosts: one container a service, pinned to one GPU.

What is known of a service is what its container says: the labels `dev.ddtree.*` and the name
`ddtree-gpuN`; `ddtree-gpuN-kept-...` is one that was stopped and can be started again. Every other
container is somebody else's: it is named if it stands in the way, and never touched.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from docker.errors import NotFound

from ...errors import DdtreeError, UsageError
from ...hosts.docker_api import DockerApi
from ...hosts.facts import HostFacts, read_facts
from ...hosts.state import HostState
from ...hosts.unknown import Unknown
from .. import inspection, kernel_cache, occupancy
from ..boot_log import plain
from ..container import (
    ENGINE_LABEL,
    Image,
    container_name,
    define,
    image_reference,
    require,
    to_api,
)
from ..labels import Labels
from ..preflight import preflight, sources
from ..spec import ServiceSpec
from ..weights import read_weights
from . import Instance, Launch

if TYPE_CHECKING:
    from ...hosts.clock import Clock
    from ...hosts.connection import Connection
    from ...hosts.container_engine import ContainerEngine
    from ...hosts.gpus import Gpu
    from ...profiles.load import Loaded
    from ...profiles.schema import HostProfile

_SECTIONS = ("ports", "engine", "gpus")
_NEVER: Any = {"Name": "no"}
_FRESH_S = 3.0
"""How long what was read of the host is taken as true: one decision asks for it several times."""


class _Gone(DdtreeError):
    """A container that somebody removed."""


class DockerRuntime:
    def __init__(self, host: Loaded[HostProfile], connection: Connection) -> None:
        self._host = host
        self._connection = connection
        self._where = f"host {host.name}"
        self.state = HostState(connection, host.value.state_directory)
        self._read: tuple[float, HostFacts] | None = None

    @property
    def gpus(self) -> int:
        return max((gpu.index for gpu in self._gpus()), default=-1) + 1

    def kinds(self) -> Mapping[int, str]:
        return {gpu.index: f"{gpu.name}, {gpu.memory_total_mib} MiB" for gpu in self._gpus()}

    @property
    def clock(self) -> Clock:
        return self._api.clock

    def held(self) -> Mapping[int, str]:
        own, neighbours = self._containers()
        holders = {}
        for gpu in self._gpus():
            mine = [one.identity for one in own if one.running and one.labels.gpu == gpu.index]
            holders[gpu.index] = occupancy.gpu_holder(gpu, mine, neighbours)
        return {index: holder for index, holder in holders.items() if holder is not None}

    def launch(self, spec: ServiceSpec) -> Launch:
        image = self._image(spec)
        container = define(spec, image, self._gpu(spec), self._engine(), hub=self._hub(spec))
        engine = image.labels.get(ENGINE_LABEL, "sglang")
        return Launch(engine, container.argv, container.environment, container)

    def instances(self) -> list[Instance]:
        found = self._instances("current")
        return sorted(found, key=lambda instance: instance.labels.gpu)

    def kept(self) -> list[Instance]:
        found = self._instances("kept")
        return sorted(found, key=lambda instance: -(instance.stopped_at or 0.0))

    def reach(self, instance: Instance) -> str:
        address = inspection.host_address(instance.labels.bind)
        return f"http://127.0.0.1:{self._connection.forward(address, instance.labels.port)}"

    def check(self, spec: ServiceSpec) -> None:
        image = self._image(spec)
        require(spec, image)
        assert spec.container is not None, "decide() gives each service of a docker host one"
        user = spec.container.user or image.user
        preflight(self._connection, spec, self._gpu(spec), user)
        name = container_name(spec.gpu)
        if any(neighbour.name == name for neighbour in self._containers()[1]):
            raise DdtreeError(
                f"container {name}, which this toolkit did not start, has the name that the "
                "service needs",
                where=self._where,
                mend=f"rename it there: `docker rename {name} ...`",
            )

    def port_holder(self, bind: str, port: int) -> str | None:
        listeners = self._facts().ports
        own, neighbours = self._containers()
        return occupancy.port_holder(
            bind,
            port,
            # Unknown: Docker itself will say that it is taken.
            listeners=() if isinstance(listeners, Unknown) else listeners,
            own={
                one.labels.port: f"{one.labels.service} on GPU {one.labels.gpu}"
                for one in own
                if one.running
            },
            neighbours=neighbours,
        )

    def start(self, labels: Labels, launch: Launch) -> Instance:
        container = launch.container
        assert container is not None, "launch() gives one"
        with self._api.asked(f"create {container.name}"):
            body = to_api(container, labels.to_mapping())
            created = self._api.created(body, container.name)
        volumes = [mount.target for mount in container.mounts if mount.kind == "volume"]
        try:
            with self._api.asked(f"start {container.name}"):
                for folder in volumes:
                    self._api.put_archive(created, "/", kernel_cache.opened(folder))
                self._api.start(created)
        except DdtreeError as error:
            with self._api.asked(f"remove {container.name}"):
                self._api.remove_container(created, force=True)
            mend = error.mend or inspection.mend_of(error.what)
            raise type(error)(error.what, where=error.where, mend=mend) from error
        return self._instance(created)

    def settle(self, instance: Instance) -> None:
        policy: Any = {"Name": instance.labels.restart or "no"}
        with self._api.asked(f"set the restart policy of {instance.title}"):
            self._api.update_container(_id(instance), restart_policy=policy)

    def retire(self, instance: Instance, *, grace_s: float) -> None:
        identity, name = _id(instance), container_name(instance.labels.gpu)
        with self._api.asked(f"stop {name}"):
            # `always` would bring it back beside its successor when the host boots.
            self._api.update_container(identity, restart_policy=_NEVER)
            self._api.stop(identity, timeout=int(grace_s))
            self._api.rename(identity, inspection.kept_name(instance.labels.gpu, identity))

    def revive(self, instance: Instance) -> Instance:
        identity, name = _id(instance), container_name(instance.labels.gpu)
        with self._api.asked(f"start {name} again"):
            self._api.rename(identity, name)
            self._api.start(identity)
        return self._instance(identity)

    def remove(self, instance: Instance, *, grace_s: float) -> None:
        with self._api.asked(f"remove {instance.title}"):
            self._api.stop(_id(instance), timeout=int(grace_s))
            self._api.remove_container(_id(instance), force=True)

    def ended(self, instance: Instance) -> str | None:
        try:
            return inspection.how_it_ended(self._inspect(_id(instance)))
        except _Gone as gone:
            return gone.what

    def log_lines(self, gpu: int, *, last: int, follow: bool) -> Iterator[str]:
        identity = self._with_a_log(gpu)
        with self._api.asked("show a log"):
            stream = self._api.logs(identity, stream=True, follow=follow, tail=last)
            rest = b""
            try:
                for data in stream:
                    *lines, rest = (rest + data).split(b"\n")
                    yield from (plain(line.decode(errors="replace")) for line in lines)
                if rest:
                    yield plain(rest.decode(errors="replace"))
            finally:
                stream.close()

    def _with_a_log(self, gpu: int) -> str:
        for instance in (*self.instances(), *self.kept()):
            if instance.labels.gpu == gpu:
                return _id(instance)
        raise DdtreeError("no log: nothing was started here", where=f"{self._where}, GPU {gpu}")

    @cached_property
    def _api(self) -> DockerApi:
        api = DockerApi(self._connection)
        self._connection.at_close(api.close)
        return api

    def _containers(self) -> tuple[list[inspection.Listed], list[occupancy.Neighbour]]:
        """Those of this toolkit, kept ones too, and those of others."""
        own, neighbours = [], []
        with self._api.asked("list its containers"):
            entries = self._api.containers(all=True)
        for entry in entries:
            if (listed := inspection.own(entry)) is not None:
                own.append(listed)
            else:
                neighbours.append(inspection.neighbour(entry))
        return own, neighbours

    def _instances(self, role: str) -> list[Instance]:
        own, _ = self._containers()
        found = []
        for one in own:
            if one.role == role:
                # Somebody may remove it between the two questions.
                with contextlib.suppress(_Gone):
                    found.append(self._instance(one.identity))
        return found

    def _instance(self, identity: str) -> Instance:
        return inspection.instance(self._inspect(identity), self._host.value)

    def _inspect(self, identity: str) -> dict[str, Any]:
        """Raises _Gone for a container that is not there."""
        try:
            with self._api.asked("show a container"):
                found: dict[str, Any] = self._api.inspect_container(identity)
                return found
        except DdtreeError as error:
            if isinstance(error.__cause__, NotFound):
                raise _Gone("its container is gone", where=self._where) from error
            raise

    def _image(self, spec: ServiceSpec) -> Image:
        reference = image_reference(spec)
        try:
            with self._api.asked(f"show image {reference}"):
                found = self._api.image(reference)
        except DdtreeError as error:
            if not isinstance(error.__cause__, NotFound):
                raise
            raise DdtreeError(
                f"image {reference} is not there",
                where=self._where,
                mend=f"`ddtree build {self._host.name}` makes the project's own, `ddtree image "
                "copy` brings one from another host; container.image of the service names it",
            ) from error
        config = found["Config"]
        labels = config.get("Labels") or {}
        return Image(reference, found["Id"], labels, config.get("User") or None)

    def _facts(self) -> HostFacts:
        now = time.monotonic()
        if self._read is None or now - self._read[0] > _FRESH_S:
            self._read = now, read_facts(self._connection, _SECTIONS)
        return self._read[1]

    def _engine(self) -> ContainerEngine:
        engine = self._facts().engine
        if isinstance(engine, Unknown):
            raise DdtreeError(engine.what, where=self._where, mend=engine.mend)
        return engine

    def _hub(self, spec: ServiceSpec) -> str | None:
        """The host's Hugging Face cache, if the service takes weights from there."""
        named = [source for source in sources(spec) if not source.is_path]
        for facts in read_weights(self._connection, named).values() if named else ():
            if facts.cache is not None:
                return facts.cache.hub
        return None

    def _gpu(self, spec: ServiceSpec) -> Gpu:
        for gpu in self._gpus():
            if gpu.index == spec.gpu:
                return gpu
        raise UsageError(f"no GPU {spec.gpu}", where=self._where)

    def _gpus(self) -> tuple[Gpu, ...]:
        gpus = self._facts().gpus
        if isinstance(gpus, Unknown):
            raise DdtreeError(gpus.what, where=self._where, mend=gpus.mend)
        return gpus


def _id(instance: Instance) -> str:
    return instance.identity.removeprefix("container ")
