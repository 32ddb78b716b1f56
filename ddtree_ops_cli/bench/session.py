"""One `ddtree bench`, from the two services to the report."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_state_path

from ..engine_api.answers import ServerInfo
from ..engine_api.client import EngineClient
from ..errors import DdtreeError, Interrupted
from ..hosts.connection import Connections
from ..output import machine
from ..output.console import note, warn
from ..profiles.load import Loaded
from ..profiles.locate import Library
from ..profiles.schema import HostProfile
from ..rollout.apply import check
from ..rollout.companion import Companion, find_companion, free_gpus, present
from ..rollout.deployment import Request, prepare
from ..rollout.turns import turns
from ..services.runtimes import Instance, Runtime, open_runtime
from . import plan, report
from .answer import Arm
from .arms import SERVICES, arm_name, choose, doubts, no_companion, verify_model
from .comparison import Comparison, compare
from .prompts import Suite, load_suite
from .record import Record, Side
from .run import Run, Settings, measure
from .turns import measure_in_turns


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for."""

    host: str
    service: str | None
    gpu: int | None
    against: str
    """`linear` or `plain`."""
    suite: str
    settings: Settings
    alternate: bool = False
    """The arms may take turns on one GPU."""


@dataclass(slots=True)
class Bench:
    """What is known before anything is started."""

    library: Library
    wanted: Wanted
    suite: Suite
    host: Loaded[HostProfile]
    runtime: Runtime
    chosen: Instance
    companion: Companion
    run: Run

    @classmethod
    def prepare(cls, library: Library, wanted: Wanted, connections: Connections) -> Bench:
        suite = load_suite(wanted.suite)
        host = library.host(wanted.host)
        runtime = open_runtime(host, connections)
        chosen = choose(
            runtime.instances(),
            host=wanted.host,
            service=wanted.service,
            gpu=wanted.gpu,
            against=wanted.against,
        )
        companion = find_companion(
            library,
            host,
            runtime,
            chosen,
            service=SERVICES[wanted.against],
            may_start=host.value.temporary_services,
            may_take_turns=wanted.alternate,
        )
        if companion is None:
            raise no_companion(
                host, chosen, wanted.against, free=bool(free_gpus(runtime, like=chosen.labels.gpu))
            )
        arms = (arm_name(chosen), wanted.against)
        run = Run(suite.prompts, wanted.settings, arms, companion.in_turns)
        return cls(library, wanted, suite, host, runtime, chosen, companion, run)

    def start_companion(self) -> Request:
        assert self.companion.start is not None
        spec = self.companion.start.change.new.spec
        return Request(spec.service, spec.model, spec.gpu)


def run_bench(library: Library, wanted: Wanted, *, json_to: str | None) -> None:
    """Measure, write the record, and show the comparison."""
    with Connections() as connections:
        bench = Bench.prepare(library, wanted, connections)
        file = _record_file(wanted.host, json_to)
        record = Record(file=file, host=wanted.host, suite=bench.suite, run=bench.run)
        if bench.companion.in_turns:
            _in_turns(bench, record)
        else:
            _side_by_side(bench, record)
    comparison = _compared(bench.run)
    document = record.write(comparison)
    if json_to == "-":
        machine.write(document)
    elif comparison is None:
        warn(f"all {len(bench.run.rounds)} rounds were disturbed: there is nothing to compare")
    else:
        report.show(comparison, bench.run, bench.suite, record.sides)
    note(f"every measurement is in {record.file}")


def show_plan(library: Library, wanted: Wanted, *, json_to: str | None) -> None:
    """What a run would start and stop, and its schedule; starts and measures nothing."""
    with Connections() as connections:
        bench = Bench.prepare(library, wanted, connections)
        if json_to is None:
            plan.show(bench.run, bench.chosen, bench.companion)
        else:
            machine.write(plan.document(bench.run, bench.chosen, bench.companion))
        if bench.companion.start is not None:
            check(bench.companion.start, bench.runtime)


def _side_by_side(bench: Bench, record: Record) -> None:
    known = _Known(bench.runtime, record)
    with ExitStack() as stack:
        beside = stack.enter_context(
            present(bench.companion, bench.library, bench.host, bench.runtime)
        )
        temporary = bench.companion.running is None
        arms = (
            stack.enter_context(known.arm(bench.chosen, temporary=False)),
            stack.enter_context(known.arm(beside, temporary=temporary)),
        )
        record.write()
        with _kept(bench.run, record):
            measure(bench.run, arms, on_change=lambda: _write(record))


def _in_turns(bench: Bench, record: Record) -> None:
    request = bench.start_companion()
    known = _Known(bench.runtime, record)

    @contextmanager
    def seat(name: str) -> Iterator[Arm]:
        temporary = name != bench.run.arms[0]
        instance = both.second() if temporary else both.first()
        with known.arm(instance, temporary=temporary) as arm:
            yield arm

    with (
        _kept(bench.run, record),
        turns(
            bench.host,
            bench.runtime,
            bench.chosen,
            lambda: prepare(bench.library, bench.host, bench.runtime, request),
        ) as both,
    ):
        record.write()
        measure_in_turns(bench.run, seat, on_change=lambda: _write(record))


class _Known:
    """The arms that were there, each of which must serve what the first one serves."""

    def __init__(self, runtime: Runtime, record: Record) -> None:
        self._runtime = runtime
        self._record = record
        self._first: tuple[Arm, ServerInfo] | None = None

    @contextmanager
    def arm(self, instance: Instance, *, temporary: bool) -> Iterator[Arm]:
        with EngineClient(self._runtime.reach(instance)) as engine:
            name = arm_name(instance)
            arm = Arm(name, instance.title, engine, instance.labels.served_name)
            info = verify_model(arm, like=self._first)
            self._first = self._first or (arm, info)
            if all(side.name != name for side in self._record.sides):
                for doubt in doubts(instance, info):
                    warn(doubt)
                kind = self._runtime.kinds().get(instance.labels.gpu, "unknown")
                if any(side.gpu_kind != kind for side in self._record.sides):
                    warn(f"{instance.title} is on another kind of GPU: {kind}")
                self._record.sides.append(Side(name, instance, info, kind, temporary))
            yield arm


@contextmanager
def _kept(run: Run, record: Record) -> Iterator[None]:
    """End with one line that says how much was kept, and where."""
    kept = f"its finished rounds are in {record.file}"
    try:
        yield
    except (KeyboardInterrupt, Interrupted):
        raise Interrupted(run.reason or "interrupted", mend=f"{kept}, marked as partial") from None
    except DdtreeError as error:
        if run.status == "complete":
            what, kept = error.what, f"the comparison is complete, in {record.file}"
        elif run.rounds:
            what = f"the run is invalid after {len(run.rounds)} rounds: {error.what}"
        else:
            raise
        mend = f"{error.mend}; {kept}" if error.mend else kept
        raise type(error)(what, where=error.where, mend=mend) from error


def _write(record: Record) -> None:
    record.write(_compared(record.run))


def _compared(run: Run) -> Comparison | None:
    if not run.counted:
        return None
    return compare(
        run.arms,
        [prompt.id for prompt in run.prompts],
        run.counted,
        run.twins,
        greedy=run.settings.shape.greedy,
    )


def _record_file(host: str, json_to: str | None) -> Path:
    if json_to not in (None, "-"):
        return Path(str(json_to))
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return user_state_path("ddtree") / "bench" / f"{host}-{stamp}-{os.getpid()}.json"
