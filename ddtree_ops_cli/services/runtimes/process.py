"""The runtime of the lab: one process group a service, on this machine.

Everything lies under the XDG state directory, one folder a GPU place:

    hosts/<host>/<gpu>/service.json   labels, pid and start time of the process
    hosts/<host>/<gpu>/log            its output
    hosts/<host>/<gpu>/kept/<time>/   the same two files of a service that was stopped
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from platformdirs import user_state_path

from ...errors import DdtreeError
from ...hosts.clock import THIS, Clock
from ...hosts.shell import ThisMachine
from ...hosts.state import HostState
from ...interrupts import deferred
from ..labels import Labels
from ..sglang_args import LAB_ENGINE, engine_args
from ..spec import ServiceSpec
from . import Instance, Launch

_POLL_S = 0.2
_LONGER_LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_FRESH_LOG = _LONGER_LOG | os.O_TRUNC
# psutil derives the start time from the boot time, which moves when the clock is set.
_START_TIME_SLACK_S = 2.0


class ProcessRuntime:
    def __init__(self, host: str, *, gpus: int) -> None:
        self.gpus = gpus
        self._root = user_state_path("ddtree") / "hosts" / host
        self.state = HostState(ThisMachine(host), str(self._root))

    @property
    def clock(self) -> Clock:
        return THIS

    def kinds(self) -> Mapping[int, str]:
        return dict.fromkeys(range(self.gpus), "this machine")

    def held(self) -> Mapping[int, str]:
        return {}

    def launch(self, spec: ServiceSpec) -> Launch:
        from importlib.metadata import version

        return Launch(f"lab {version('ddtree-ops')}", (*LAB_ENGINE, *engine_args(spec)), {})

    def instances(self) -> list[Instance]:
        return [found for place in self._places() if (found := _read(place)) is not None]

    def kept(self) -> list[Instance]:
        found = [
            instance
            for place in self._places()
            for folder in (place / "kept").glob("*")
            if (instance := _read(folder)) is not None
        ]
        return sorted(found, key=lambda instance: -(instance.stopped_at or 0.0))

    def reach(self, instance: Instance) -> str:
        return instance.url

    def check(self, spec: ServiceSpec) -> None:
        from ...lab.server import check

        check(engine_args(spec))

    def port_holder(self, bind: str, port: int) -> str | None:
        import socket

        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((bind, port))
            except OSError as error:
                own = [i for i in self.instances() if i.labels.port == port]
                return own[0].title if own else error.strerror or "another program"
        return None

    def start(self, labels: Labels, launch: Launch) -> Instance:
        return self._spawn(labels, launch.argv, launch.environment, _FRESH_LOG)

    def settle(self, instance: Instance) -> None:
        """Nobody would start a process of this machine again."""

    def retire(self, instance: Instance, *, grace_s: float) -> None:
        self._end(instance, grace_s)
        place = self._root / str(instance.labels.gpu)
        folder = place / "kept" / f"{time.time():.3f}"
        folder.mkdir(parents=True)
        # The record moves last: until then the service is still listed.
        for name in ("log", "service.json"):
            with contextlib.suppress(FileNotFoundError):
                (place / name).rename(folder / name)

    def revive(self, instance: Instance) -> Instance:
        place, folder = self._root / str(instance.labels.gpu), self._folder(instance)
        with contextlib.suppress(FileNotFoundError):
            (folder / "log").rename(place / "log")
        again = self._spawn(instance.labels, instance.argv, instance.environment, _LONGER_LOG)
        shutil.rmtree(folder, ignore_errors=True)
        return again

    def remove(self, instance: Instance, *, grace_s: float) -> None:
        if instance.state == "kept":
            shutil.rmtree(self._folder(instance), ignore_errors=True)
            return
        self._end(instance, grace_s)
        place = self._root / str(instance.labels.gpu)
        for name in ("service.json", "log"):
            (place / name).unlink(missing_ok=True)

    def ended(self, instance: Instance) -> str | None:
        return None if self._runs(instance.labels.gpu) else "its process ended"

    def log_lines(self, gpu: int, *, last: int, follow: bool) -> Iterator[str]:
        place = self._root / str(gpu)
        path = place / "log"
        if not path.exists():
            path = max(place.glob("kept/*/log"), default=path)
        if not path.exists():
            raise DdtreeError("no log: nothing was started here", where=f"GPU {gpu}")
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from (line.rstrip("\n") for line in deque(file, maxlen=last))
            while follow:
                if line := file.readline():
                    yield line.rstrip("\n")
                elif not self._runs(gpu):
                    return
                else:
                    time.sleep(_POLL_S)

    def _runs(self, gpu: int) -> bool:
        record = _load(self._root / str(gpu) / "service.json")
        return record is not None and _is_ours(record)

    def _places(self) -> list[Path]:
        return sorted(self._root.glob("[0-9]*"), key=lambda place: int(place.name))

    def _folder(self, instance: Instance) -> Path:
        return self._root / str(instance.labels.gpu) / "kept" / f"{instance.stopped_at:.3f}"

    def _spawn(
        self, labels: Labels, argv: Sequence[str], environment: Mapping[str, str], log: int
    ) -> Instance:
        place = self._root / str(labels.gpu)
        place.mkdir(parents=True, exist_ok=True)
        # An interrupt between the start and the record would leave a process that nobody knows.
        with deferred():
            # subprocess wants to own what it starts; this process shall outlive its parent.
            pid = os.posix_spawn(
                argv[0],
                list(argv),
                {**os.environ, **environment},
                setsid=True,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(place / "log"), log, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
            )
            record = {
                "pid": pid,
                "started_at": psutil.Process(pid).create_time(),
                "argv": list(argv),
                "environment": dict(environment),
                "labels": labels.to_mapping(),
            }
            try:
                _write(place / "service.json", record)
            except DdtreeError:
                _signal_group(pid, signal.SIGKILL)
                raise
        return _instance(record)

    def _end(self, instance: Instance, grace_s: float) -> None:
        record = _load(self._root / str(instance.labels.gpu) / "service.json")
        if record is not None and _is_ours(record):
            group = record["pid"]
            _signal_group(group, signal.SIGTERM)
            if not _wait_gone(group, grace_s):
                _signal_group(group, signal.SIGKILL)
                if not _wait_gone(group, grace_s):
                    raise DdtreeError(f"process group {group} does not end", where=instance.title)


def _read(folder: Path) -> Instance | None:
    record = _load(folder / "service.json")
    if record is None:
        return None
    stopped_at = float(folder.name) if folder.parent.name == "kept" else None
    return _instance(record, stopped_at)


def _instance(record: Mapping[str, Any], stopped_at: float | None = None) -> Instance:
    labels = Labels.from_mapping(record["labels"])
    address = "127.0.0.1" if labels.bind == "0.0.0.0" else labels.bind
    return Instance(
        labels=labels,
        state="kept" if stopped_at else "running" if _is_ours(record) else "dead",
        identity=f"pid {record['pid']}",
        url=f"http://{f'[{address}]' if ':' in address else address}:{labels.port}",
        started_at=record["started_at"],
        argv=tuple(record["argv"]),
        environment=record["environment"],
        stopped_at=stopped_at,
    )


def _write(path: Path, record: Mapping[str, Any]) -> None:
    fresh = path.with_suffix(".new")
    try:
        fresh.write_text(json.dumps(record, indent=2))
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise DdtreeError(f"cannot write: {error.strerror}", where=str(path)) from error


def _load(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_text())
        Labels.from_mapping(record["labels"])
        return {
            "pid": int(record["pid"]),
            "started_at": float(record["started_at"]),
            "labels": dict(record["labels"]),
            "argv": list(record["argv"]),
            "environment": dict(record["environment"]),
        }
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DdtreeError(
            f"this record of a service is damaged ({error})",
            where=str(path),
            mend="end its process if one is left, and remove the file",
        ) from error


def _is_ours(record: Mapping[str, Any]) -> bool:
    """Whether the recorded process still runs, and not another that was given its pid."""
    try:
        process = psutil.Process(record["pid"])
        same = abs(process.create_time() - record["started_at"]) < _START_TIME_SLACK_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _wait_gone(group: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while _members(group):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _members(group: int) -> list[psutil.Process]:
    """The living of a process group; a zombie that its parent has not reaped is not one."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
