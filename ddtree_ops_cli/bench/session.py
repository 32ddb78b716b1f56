"""One `ddtree bench`, from the two services to the report."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_state_path

from ..engine_api.client import EngineClient
from ..errors import DdtreeError, Interrupted
from ..hosts.connection import Connections
from ..output import machine
from ..output.console import note, warn
from ..profiles.locate import Library
from ..rollout.companion import companion, find_running
from ..services.runtimes import Instance, open_runtime
from . import report
from .answer import Arm
from .arms import ALGORITHMS, SERVICES, arm_name, choose, doubts, no_companion, verify_same_model
from .comparison import Comparison, compare
from .prompts import load_suite
from .record import Record, Side
from .run import Run, Settings, measure
from .schedule import round_order


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


def run_bench(library: Library, wanted: Wanted, *, json_to: str | None) -> None:
    """Measure, write the record, and show the comparison."""
    suite = load_suite(wanted.suite)
    target = library.host(wanted.host)
    with ExitStack() as stack:
        runtime = open_runtime(target, stack.enter_context(Connections()))
        before = runtime.instances()
        chosen = _chosen(before, wanted)
        beside = stack.enter_context(
            companion(
                library,
                target,
                runtime,
                chosen,
                service=SERVICES[wanted.against],
                may_start=target.value.temporary_services,
            )
        )
        if beside is None:
            raise no_companion(wanted.host, chosen, wanted.against)
        both = (chosen, beside)
        arms = (
            _arm(chosen, stack.enter_context(EngineClient(runtime.reach(chosen)))),
            _arm(beside, stack.enter_context(EngineClient(runtime.reach(beside)))),
        )
        infos = verify_same_model(arms)
        for doubt in doubts(chosen, infos[0]):
            warn(doubt)
        run = Run(suite.prompts, wanted.settings, (arms[0].name, arms[1].name))
        record = Record(
            file=_record_file(wanted.host, json_to),
            host=wanted.host,
            suite=suite,
            sides=tuple(
                Side(arm.name, instance, info, temporary=instance not in before)
                for arm, instance, info in zip(arms, both, infos, strict=True)
            ),
            run=run,
        )
        record.write()
        _measure(run, arms, record)
    comparison = _compared(run)
    document = record.write(comparison)
    if json_to == "-":
        machine.write(document)
    elif comparison is None:
        warn(f"all {len(run.rounds)} rounds were disturbed: there is nothing to compare")
    else:
        report.show(comparison, run, suite, record.sides)
    note(f"every measurement is in {record.file}")


def show_plan(library: Library, wanted: Wanted, *, json_to: str | None) -> None:
    """The schedule of a run; starts and measures nothing."""
    suite = load_suite(wanted.suite)
    target = library.host(wanted.host)
    with Connections() as connections:
        runtime = open_runtime(target, connections)
        instances = runtime.instances()
        chosen = _chosen(instances, wanted)
        free = set(range(runtime.gpus)) - set(runtime.held())
    free -= {instance.labels.gpu for instance in instances}
    beside = find_running(instances, chosen, algorithm=ALGORITHMS[wanted.against])
    service = SERVICES[wanted.against]
    if beside is None and not (free and target.value.temporary_services):
        raise no_companion(wanted.host, chosen, wanted.against)
    second = (
        f"{beside.title}, {beside.url}"
        if beside
        else f"{service}, to be started on GPU {min(free)} and stopped after"
    )
    arms = (arm_name(chosen), wanted.against)
    run = Run(suite.prompts, wanted.settings, arms)
    if json_to is None:
        report.show_schedule(run, f"{chosen.title}, {chosen.url}", second)
        return
    ids = [prompt.id for prompt in suite.prompts]
    machine.write(
        {
            "arms": {arms[0]: chosen.title, arms[1]: second},
            "schedule": [
                round_order(index, ids, arms, seed=wanted.settings.seed)
                for index in range(wanted.settings.rounds)
            ],
        }
    )


def _measure(run: Run, arms: tuple[Arm, Arm], record: Record) -> None:
    """Ends with one line that says how much was kept, and where."""
    kept = f"its finished rounds are in {record.file}"
    try:
        measure(run, arms, on_change=lambda: _write(record))
    except KeyboardInterrupt:
        raise Interrupted(run.reason, mend=f"{kept}, marked as partial") from None
    except DdtreeError as error:
        if not run.rounds:
            raise
        raise type(error)(
            f"the run is invalid after {len(run.rounds)} rounds: {error.what}",
            where=error.where,
            mend=kept,
        ) from error


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


def _chosen(instances: list[Instance], wanted: Wanted) -> Instance:
    return choose(
        instances,
        host=wanted.host,
        service=wanted.service,
        gpu=wanted.gpu,
        against=wanted.against,
    )


def _arm(instance: Instance, engine: EngineClient) -> Arm:
    return Arm(arm_name(instance), instance.title, engine, instance.labels.served_name)


def _record_file(host: str, json_to: str | None) -> Path:
    if json_to not in (None, "-"):
        return Path(str(json_to))
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return user_state_path("ddtree") / "bench" / f"{host}-{stamp}-{os.getpid()}.json"
