"""Two scripted servers that take turns: real HTTP, and one clock that no load moves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from ddtree_ops_cli.bench import counters
from ddtree_ops_cli.bench.answer import Arm, Shape
from ddtree_ops_cli.bench.comparison import Comparison, compare
from ddtree_ops_cli.bench.prompts import Prompt
from ddtree_ops_cli.bench.run import STEADY_PASSES, Run, Settings
from ddtree_ops_cli.bench.turns import measure_in_turns
from ddtree_ops_cli.errors import DdtreeError, Interrupted, Unhealthy
from tests.bench.scripted import Engine, ScriptedClient, VirtualClock, serving

PROMPTS = (Prompt("code", "def"), Prompt("explanation", "why"))
ARMS = ("tree", "linear")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No counter of these servers lags behind."""
    monkeypatch.setattr(counters, "WATCH_S", 0.05)
    monkeypatch.setattr("ddtree_ops_cli.bench.run.SETTLE_S", 0.05)


class Gpu:
    """One place: an engine is there only in its block, and is another one each time."""

    def __init__(self, **engines: Engine) -> None:
        self.clock = VirtualClock()
        self.engines = engines
        self.taken: list[str] = []
        self.seen: list[Engine] = []
        self.starts_fail_at: int | None = None

    @contextmanager
    def seat(self, name: str) -> Iterator[Arm]:
        self.taken.append(name)
        if len(self.taken) == self.starts_fail_at:
            raise Unhealthy("the engine ended before it was ready", where=name)
        with serving(replace(self.engines[name], clock=self.clock, asked=[])) as engine:
            self.seen.append(engine)
            with ScriptedClient(engine.base_url) as client:
                yield Arm(name, f"{name} on GPU 0", client, engine.model)

    def run(self, *, rounds: int = 10, busy_ok: bool = False) -> Run:
        self.now = Run(PROMPTS, Settings(rounds, 5, Shape(64, 0.0), busy_ok), ARMS, in_turns=True)
        self.written: list[tuple[int, str]] = []
        measure_in_turns(
            self.now,
            self.seat,
            on_change=lambda: self.written.append((len(self.now.rounds), self.now.status)),
            clock=self.clock,
        )
        return self.now


def compared(run: Run) -> Comparison:
    ids = [prompt.id for prompt in run.prompts]
    return compare(run.arms, ids, run.counted, run.twins, greedy=True)


def test_a_planted_difference_of_5_percent_is_found_in_turns() -> None:
    swing = itertools.cycle([1.0, 1.01, 0.995, 1.003, 0.99, 1.006, 0.997])
    gpu = Gpu(
        tree=Engine(step_s=lambda: 0.0200 * next(swing)),
        linear=Engine(step_s=lambda: 0.0210 * next(swing)),
    )
    found = compared(gpu.run())
    assert found.verdict == "faster"
    assert found.overall.ratio is not None
    assert found.overall.ratio.estimate == pytest.approx(1.05, abs=0.01)
    assert found.rounds == 10


def test_a_machine_that_slows_down_all_the_time_makes_neither_arm_look_faster() -> None:
    slower = itertools.count()

    def step() -> float:
        return 0.02 * (1 + 0.0005 * next(slower))

    found = compared(Gpu(tree=Engine(step_s=step), linear=Engine(step_s=step)).run())
    assert found.overall.ratio is not None
    assert found.overall.ratio.estimate == pytest.approx(1.0, abs=0.001)
    assert found.verdict == "no difference"


def test_every_block_is_a_start_of_its_own_with_its_own_warm_up() -> None:
    gpu = Gpu(tree=Engine(), linear=Engine())
    run = gpu.run(rounds=3)
    assert gpu.taken == ["tree", "linear", "linear", "tree", "tree", "linear"]
    assert [warm.arm for warm in run.warm_ups] == gpu.taken
    assert all(len(warm.tok_s) == STEADY_PASSES and warm.steady for warm in run.warm_ups)
    # The whole answers are asked for once an arm; every block measures each prompt once.
    streamed = len(PROMPTS) * (STEADY_PASSES + 1)
    whole = [len(PROMPTS), len(PROMPTS), 0, 0, 0, 0]
    assert [len(engine.asked) for engine in gpu.seen] == [streamed + extra for extra in whole]
    for done in run.rounds:
        assert [one.position for one in done.measurements] == [0, 0, 1, 1]
    assert compared(run).repeats == 1


def test_one_block_that_was_never_warm_marks_its_arm() -> None:
    pace = itertools.chain([0.02] * 8, itertools.cycle([0.02, 0.02, 0.03, 0.03]))
    gpu = Gpu(tree=Engine(step_s=lambda: next(pace)), linear=Engine())
    run = gpu.run(rounds=2)
    assert [run.steady(arm) for arm in ARMS] == [False, True]


def test_a_busy_service_is_refused_before_it_is_taken_away() -> None:
    gpu = Gpu(tree=Engine(running=1), linear=Engine())
    with pytest.raises(DdtreeError, match=r"tree on GPU 0: it is serving other requests"):
        gpu.run()
    assert gpu.taken == ["tree"]
    assert gpu.seen[0].asked == []
    assert gpu.now.status == "invalid"


def test_a_block_with_the_request_of_another_costs_its_round_which_is_replaced() -> None:
    moments = itertools.count(1)
    gpu = Gpu(tree=Engine(strangers=lambda: int(next(moments) == 2 + 2 * 3 + 2)), linear=Engine())
    run = gpu.run(rounds=2)
    assert [bool(done.disturbed) for done in run.rounds] == [True, False, False]
    assert len(run.counted) == 2
    assert len(gpu.taken) == 6


def test_a_start_that_fails_leaves_the_finished_rounds_and_an_invalid_run() -> None:
    gpu = Gpu(tree=Engine(), linear=Engine())
    gpu.starts_fail_at = 4
    with pytest.raises(Unhealthy, match="before it was ready"):
        gpu.run()
    assert (gpu.now.status, len(gpu.now.rounds)) == ("invalid", 1)
    assert gpu.written == [(1, "running"), (1, "invalid")]


def test_an_engine_that_dies_in_its_block_costs_only_that_round() -> None:
    gpu = Gpu(tree=Engine(), linear=Engine())

    @contextmanager
    def dying(name: str) -> Iterator[Arm]:
        with Gpu.seat(gpu, name) as arm:
            gpu.seen[-1].dies_at = 3 if len(gpu.taken) == 3 else None
            yield arm

    gpu.seat = dying  # type: ignore[method-assign]
    with pytest.raises(Unhealthy, match="/v1/chat/completions"):
        gpu.run()
    assert (gpu.now.status, len(gpu.now.rounds)) == ("invalid", 1)


def test_an_interrupt_during_a_start_leaves_a_partial_run() -> None:
    gpu = Gpu(tree=Engine(), linear=Engine())

    @contextmanager
    def pressed(name: str) -> Iterator[Arm]:
        if len(gpu.taken) == 3:
            raise Interrupted("interrupted; running now: linear on GPU 0")
        with Gpu.seat(gpu, name) as arm:
            yield arm

    gpu.seat = pressed  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        gpu.run()
    assert (gpu.now.status, gpu.now.reason) == ("interrupted", "interrupted after 1 rounds")
