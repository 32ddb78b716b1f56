"""Runs against two scripted servers: real HTTP, and a clock that no load on the machine moves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from ddtree_ops_cli.bench import counters
from ddtree_ops_cli.bench.answer import Arm, Shape
from ddtree_ops_cli.bench.arms import verify_model
from ddtree_ops_cli.bench.comparison import Comparison, compare
from ddtree_ops_cli.bench.prompts import Prompt
from ddtree_ops_cli.bench.run import MOST_PASSES, Run, Settings, measure
from ddtree_ops_cli.errors import DdtreeError, Unhealthy
from tests.bench.scripted import Engine, ScriptedClient, VirtualClock, serving

PROMPTS = (Prompt("code", "def"), Prompt("explanation", "why"), Prompt("short", "2+2"))
Pair = Callable[..., tuple[Engine, Engine]]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No counter of these servers lags behind."""
    monkeypatch.setattr(counters, "WATCH_S", 0.05)
    monkeypatch.setattr("ddtree_ops_cli.bench.run.SETTLE_S", 0.05)


class Bench:
    """Two served engines on one clock."""

    def __init__(self, stack: ExitStack, tree: Engine, linear: Engine) -> None:
        self.clock = VirtualClock()
        self.engines = [replace(engine, clock=self.clock) for engine in (tree, linear)]
        self.arms = tuple(
            Arm(
                name,
                f"{name} on GPU {gpu}",
                stack.enter_context(ScriptedClient(stack.enter_context(serving(engine)).base_url)),
                engine.model,
            )
            for gpu, (name, engine) in enumerate(zip(("tree", "linear"), self.engines, strict=True))
        )
        self.written: list[tuple[int, str]] = []

    def run(self, *, rounds: int = 10, busy_ok: bool = False, temperature: float = 0.0) -> Run:
        settings = Settings(rounds, 5, Shape(64, temperature), busy_ok)
        self.now = Run(PROMPTS, settings, ("tree", "linear"))
        first, second = self.arms
        measure(
            self.now,
            (first, second),
            on_change=lambda: self.written.append((len(self.now.rounds), self.now.status)),
            clock=self.clock,
        )
        return self.now


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def compared(run: Run) -> Comparison:
    ids = [prompt.id for prompt in run.prompts]
    greedy = run.settings.shape.greedy
    return compare(run.arms, ids, run.counted, run.twins, greedy=greedy)


def noise(seconds: float, share: float) -> Callable[[], float]:
    """`seconds` that swing by `share` around it, in a pattern that repeats after seven asks."""
    swings = itertools.cycle([0.0, 1.0, -0.4, 0.3, -1.0, 0.6, -0.5])
    return lambda: seconds * (1 + share * next(swings))


def test_a_planted_difference_of_5_percent_is_found(stack: ExitStack) -> None:
    bench = Bench(
        stack, Engine(step_s=noise(0.0200, 0.01)), Engine(step_s=noise(0.0210, 0.01), off_spine=0)
    )
    found = compared(bench.run())
    assert found.verdict == "faster"
    ratio = found.overall.ratio
    assert ratio is not None
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.estimate == pytest.approx(1.05, abs=0.01)
    assert ratio.low <= 1.05 <= ratio.high
    assert found.rounds == 10


def test_two_equal_arms_show_no_difference_although_the_second_request_is_always_slower(
    stack: ExitStack,
) -> None:
    turn = itertools.count()
    pace = noise(0.02, 0.01)

    def second_is_slower() -> float:
        return pace() * (1.2 if next(turn) % 2 else 1.0)

    bench = Bench(stack, Engine(step_s=second_is_slower), Engine(step_s=second_is_slower))
    found = compared(bench.run())
    assert found.verdict == "no difference"
    ratio = found.overall.ratio
    assert ratio is not None
    assert ratio.estimate == pytest.approx(1.0, abs=0.005)


def test_every_prompt_runs_on_both_arms_each_round_and_temperature_is_always_sent(
    stack: ExitStack,
) -> None:
    bench = Bench(stack, Engine(), Engine())
    run = bench.run(rounds=2)
    for done in run.rounds:
        assert sorted((one.prompt, one.arm) for one in done.measurements) == sorted(
            (prompt.id, arm) for prompt in PROMPTS for arm in ("tree", "linear")
        )
    bodies = [body for engine in bench.engines for body in engine.asked]
    assert {(body["temperature"], body["max_tokens"]) for body in bodies} == {(0.0, 64)}
    streamed = [body for body in bodies if body.get("stream")]
    assert all(body["stream_options"]["include_usage"] for body in streamed)
    for engine in bench.engines:
        assert engine.flushes == 1 + len(run.rounds)


def test_sampled_answers_get_the_same_seed_on_both_arms_and_are_not_compared(
    stack: ExitStack,
) -> None:
    bench = Bench(stack, Engine(), Engine(words=lambda _: [" other"] * 99))
    run = bench.run(rounds=2, temperature=0.7)
    tree, linear = (
        sorted((body["messages"][0]["content"], body["seed"]) for body in engine.asked)
        for engine in bench.engines
    )
    assert tree == linear
    found = compared(run)
    assert [row.agreement for row in found.prompts] == [None] * 3
    figures = found.overall.arms["tree"]
    # 17 tokens in 4 verify steps, 3 of the 12 accepted drafts off the spine.
    assert figures.accept_length == pytest.approx(1 + 12 / 4)
    assert figures.off_spine_share == pytest.approx(3 / 12)


def test_figures_come_from_usage_and_counters(stack: ExitStack) -> None:
    bench = Bench(stack, Engine(step_s=lambda: 0.02, cached_tokens=5), Engine(drafts=False))
    run = bench.run(rounds=2)
    [row, *_] = compared(run).prompts
    tree, plain = row.arms["tree"], row.arms["linear"]
    assert tree.decode_tok_s == pytest.approx(16 / 0.08)
    assert tree.step_ms == pytest.approx(20)
    assert tree.accept_length == pytest.approx(4)
    assert tree.off_spine_share == pytest.approx(3 / 12)
    assert tree.ttft_s == pytest.approx(0.05)
    assert (plain.step_ms, plain.accept_length, plain.off_spine_share) == (None, None, None)
    assert {one.cached_tokens for one in run.rounds[0].measurements} == {5, 0}
    assert compared(run).repeats == 1


def test_texts_that_part_are_found_and_placed(stack: ExitStack) -> None:
    def other(prompt: str) -> list[str]:
        words = [f" {prompt[:1]}{i}" for i in range(99)]
        return words if prompt == "def" else [*words[:7], " but", *words[8:]]

    bench = Bench(stack, Engine(), Engine(words=other))
    code, explanation, _ = compared(bench.run(rounds=3)).prompts
    assert code.agreement is not None
    assert code.agreement.same
    found = explanation.agreement
    assert found is not None
    assert (found.identical, found.rounds, found.token) == (0, 3, 7)
    assert found.character == len("".join(f" w{i}" for i in range(7))) + 1


def test_warm_up_ends_when_both_arms_are_steady(stack: ExitStack) -> None:
    falling = itertools.chain([0.08] * 3, [0.04] * 3, itertools.repeat(0.02))
    bench = Bench(stack, Engine(step_s=lambda: next(falling)), Engine())
    run = bench.run(rounds=1)
    assert [(warm.arm, len(warm.tok_s)) for warm in run.warm_ups] == [("tree", 5), ("linear", 5)]
    assert run.steady("tree")
    assert run.warm_ups[0].tok_s[0] < run.warm_ups[0].tok_s[-1]


def test_an_arm_that_never_gets_steady_is_measured_and_marked(stack: ExitStack) -> None:
    pace = itertools.cycle([0.02] * 3 + [0.03] * 3)
    bench = Bench(stack, Engine(step_s=lambda: next(pace)), Engine())
    run = bench.run(rounds=1)
    assert [len(warm.tok_s) for warm in run.warm_ups] == [MOST_PASSES] * 2
    assert not run.steady("tree")
    assert run.steady("linear")


def test_a_busy_service_is_refused_before_anything_is_measured(stack: ExitStack) -> None:
    bench = Bench(stack, Engine(), Engine(running=2))
    with pytest.raises(DdtreeError, match=r"linear on GPU 1: .*2 running, 0 waiting.*--busy-ok"):
        bench.run()
    assert bench.engines[0].asked == []
    assert bench.now.status == "invalid"


def test_a_busy_service_is_measured_when_told_and_its_rounds_are_marked(stack: ExitStack) -> None:
    bench = Bench(stack, Engine(), Engine(running=1))
    run = bench.run(rounds=2, busy_ok=True)
    assert len(run.rounds) == 2
    assert all("busy" in done.disturbed[0] for done in run.rounds)
    assert len(run.counted) == 2


def test_a_round_with_the_request_of_another_does_not_count_and_is_replaced(
    stack: ExitStack,
) -> None:
    # 3 whole answers and 3 passes of warm-up, then the second request of the second round.
    moments = itertools.count(1)
    bench = Bench(stack, Engine(strangers=lambda: int(next(moments) == 12 + 3 + 2)), Engine())
    run = bench.run(rounds=4)
    [second] = [done for done in run.rounds if done.disturbed]
    assert second.index == 1
    assert "tree" in second.disturbed[0]
    assert "1 other request" in second.disturbed[0]
    assert len(run.rounds) == 5
    assert [done.index for done in run.counted] == [0, 2, 3, 4]
    lost = [one for one in second.measurements if one.verify_steps is None]
    assert len(lost) == 1


def test_a_round_beside_a_long_request_of_another_does_not_count(stack: ExitStack) -> None:
    requests = itertools.count(1)

    def other() -> int:
        # There from the second request of the first round on, gone with the one after it.
        bench.engines[0].running = int(next(requests) == 12 + 2)
        return 0

    bench = Bench(stack, Engine(strangers=other), Engine())
    run = bench.run(rounds=1)
    assert [bool(done.disturbed) for done in run.rounds] == [True, False]
    assert "1 running and 0 waiting" in run.rounds[0].disturbed[0]


def test_a_server_that_dies_leaves_the_finished_rounds_and_an_invalid_run(
    stack: ExitStack,
) -> None:
    # 12 requests of warm-up, 2 whole rounds, and the first request of the third.
    bench = Bench(stack, Engine(), Engine(dies_at=12 + 6 + 1))
    with pytest.raises(Unhealthy, match="/v1/chat/completions"):
        bench.run()
    assert bench.now.status == "invalid"
    assert len(bench.now.rounds) == 2
    assert bench.written[-1] == (2, "invalid")
    assert compared(bench.now).verdict == "too few rounds"


def test_an_interrupt_leaves_the_finished_rounds_and_a_partial_run(stack: ExitStack) -> None:
    asks = itertools.count(1)

    def pressed() -> float:
        if next(asks) > 9 + 3 + 1:
            raise KeyboardInterrupt
        return 0.02

    bench = Bench(stack, Engine(), Engine())
    tree, _ = bench.arms
    stream = tree.engine.chat_stream

    def interrupted(*args: object, **kwargs: object) -> object:
        pressed()
        return stream(*args, **kwargs)  # type: ignore[arg-type]

    tree.engine.chat_stream = interrupted  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert (bench.now.status, len(bench.now.rounds)) == ("interrupted", 1)
    assert bench.written[-1] == (1, "interrupted")


def test_the_record_is_written_after_every_round(stack: ExitStack) -> None:
    bench = Bench(stack, Engine(), Engine())
    bench.run(rounds=3)
    assert bench.written == [
        (0, "running"), (1, "running"), (2, "running"), (3, "running"), (3, "complete"),
    ]  # fmt: skip


def test_an_arm_with_another_model_is_refused(stack: ExitStack) -> None:
    bench = Bench(stack, Engine(), Engine(model="other"))
    tree, linear = bench.arms
    with pytest.raises(Unhealthy, match="linear on GPU 1: it serves other, not lab-pair"):
        verify_model(linear, like=(tree, verify_model(tree)))


def test_an_arm_with_another_target_under_the_same_name_is_refused(stack: ExitStack) -> None:
    bench = Bench(stack, Engine(), Engine(model_path="/models/older"))
    tree, linear = bench.arms
    with pytest.raises(Unhealthy, match=r"its target is /models/older, and that of tree on GPU 0"):
        verify_model(linear, like=(tree, verify_model(tree)))


def test_an_arm_that_reads_the_prompts_otherwise_is_refused(stack: ExitStack) -> None:
    bench = Bench(stack, Engine(), Engine(prompt_tokens=14))
    with pytest.raises(Unhealthy, match="as 14 tokens, and tree as 12"):
        bench.run()


def test_answers_without_a_token_after_the_first_chunk_have_no_rate(stack: ExitStack) -> None:
    bench = Bench(stack, Engine(chunks=(2,)), Engine())
    with pytest.raises(DdtreeError, match="there is no decode rate"):
        bench.run()
