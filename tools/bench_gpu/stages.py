"""The stages of a measurement on a host with GPUs. What fails is recorded and ends no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

from ddtree_ops_cli.bench.answer import Arm
from ddtree_ops_cli.bench.run import Run
from ddtree_ops_cli.services.shapes import Pair

from . import devices, pinned
from .contest import Load, contest, contest_in_turns, document, joined, verify_off_spine
from .memory import held, printed
from .placement import Match, Placement
from .profile import profile_server
from .results import Results
from .running import Running, launched
from .services import Device, Model, Service, need

READY_S = 300.0
"""A cold start compiles Triton kernels for two to three minutes."""
CONTEST_S = 60.0
PROFILE_S = 90.0
PROFILED_TOKENS = 700


@dataclass(slots=True)
class Bench:
    """What all stages share."""

    results: Results
    sglang: Path
    folder: Path
    """Of logs and traces."""
    together: bool
    """Start both servers of a GPU at the same time."""
    profiled_steps: int
    base_port: int
    _ports: count[int] = field(init=False)
    _launched: list[Running] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._ports = count(self.base_port)

    def service(
        self, model: Model, budget: int | None, device: Device, *, off_spine: bool = False
    ) -> Service:
        with self._lock:
            return Service(model, budget, device, next(self._ports), off_spine)

    def launch(self, stack: ExitStack, service: Service) -> Running:
        self.results.put(
            "servers",
            service.title,
            {"argv": list(service.argv), "gpu": asdict(service.device), **self._forced(service)},
        )
        running = stack.enter_context(launched(service, sglang=self.sglang, folder=self.folder))
        self._launched.append(running)
        return running

    def abort(self) -> None:
        """Let every lane end now: no further part begins, and those that run lose their servers."""
        self.results.limit_s = 0.0
        for running in self._launched:
            running.kill()

    def ready(self, running: Running) -> bool:
        """Waits for it; False, with the reason recorded, if it does not start."""
        if running.ready_after_s is not None:
            return True
        title = f"start {running.service.title}"
        limit = min(READY_S, self.results.left_s())
        self.results.attempt(title, lambda: running.wait_ready(limit))
        return running.ready_after_s is not None

    def _forced(self, service: Service) -> dict[str, Any]:
        if service.model.accept_length is None:
            return {}
        where = "off the spine" if service.off_spine else "along the spine"
        return {"forced_accept_length": service.model.accept_length, "forced": where}


def measure_shapes(
    bench: Bench, model: Model, pair: Pair, placement: Placement, load: Load
) -> None:
    """All matches, the lanes beside each other, then what is spread over two GPUs."""
    with ThreadPoolExecutor(max(len(placement.lanes), 1)) as pool:
        lanes = [
            pool.submit(shapes_lane, bench, model, pair, lane, load) for lane in placement.lanes
        ]
        try:
            for lane in lanes:
                lane.result()
        except KeyboardInterrupt:
            bench.abort()
            raise
    if placement.across:
        shapes_lane(bench, model, pair, placement.across, load)
    for match in placement.turns:
        _shapes_turns(bench, model, pair, match, load)


def shapes_lane(bench: Bench, model: Model, pair: Pair, lane: Sequence[Match], load: Load) -> None:
    """One linear server stays; the trees come one after the other."""
    with ExitStack() as stay:
        linear = bench.launch(stay, bench.service(model, None, lane[0].linear))
        if not bench.together and not bench.ready(linear):
            return
        for match in lane:
            with ExitStack() as stack:
                alone = linear.ready_after_s is not None
                tree = bench.launch(
                    stack, bench.service(model, match.budget, match.tree, off_spine=match.off_spine)
                )
                if not bench.ready(linear):
                    return
                _shapes_match(bench, linear, tree, pair, load, alone=alone)


def _shapes_match(
    bench: Bench, linear: Running, tree: Running, pair: Pair, load: Load, *, alone: bool
) -> None:
    if not bench.ready(tree):
        return
    title = tree.service.title
    for running, undisturbed in ((linear, not bench.together), (tree, alone)):
        _note_memory(bench, running, pair, alone=undisturbed)
    _note_contest(bench, linear, tree, load, title)
    for running in (linear, tree):
        _note_profile(bench, running)


def _shapes_turns(bench: Bench, model: Model, pair: Pair, match: Match, load: Load) -> None:
    """A match on a GPU that holds one server at a time."""
    services = {
        "linear": bench.service(model, None, match.linear),
        "tree": bench.service(model, match.budget, match.tree, off_spine=match.off_spine),
    }
    title = services["tree"].title

    @contextmanager
    def seat(arm: str) -> Iterator[Arm]:
        with ExitStack() as stack:
            running = bench.launch(stack, services[arm])
            running.wait_ready(min(READY_S, bench.results.left_s()))
            _note_memory(bench, running, pair, alone=True)
            _note_profile(bench, running)
            yield running.arm

    def note(run: Run) -> None:
        bench.results.put("contests", title, document(run))

    bench.results.attempt(
        f"contest {title}, in turns",
        lambda: contest_in_turns(seat, load, note),
        needs_s=CONTEST_S,
    )


def _note_profile(bench: Bench, running: Running) -> None:
    title = running.service.title
    if bench.profiled_steps == 0 or title in bench.results.document.get("profiles", {}):
        return
    found = bench.results.attempt(
        f"profile {title}",
        lambda: profile_server(
            running.arm,
            bench.folder / f"trace-{title}",
            steps=bench.profiled_steps,
            most_tokens=PROFILED_TOKENS,
            limit_s=min(PROFILE_S, bench.results.left_s()),
        ),
        needs_s=30,
    )
    if found is not None:
        bench.results.put("profiles", title, {**asdict(found), "idle_ms": found.idle_ms})


def _note_memory(bench: Bench, running: Running, pair: Pair, *, alone: bool) -> None:
    """Of a server that has just become ready: later it may hold more."""
    title = running.service.title
    if title in bench.results.document.get("memory", {}):
        return
    found = bench.results.attempt(
        f"memory {title}", lambda: (devices.holders(), devices.used_gib())
    )
    if found is None:
        return
    holders, used = found
    needs, says = need(running.service, pair), printed(running.log_text())
    bench.results.put(
        "memory",
        title,
        {
            "needs_gib": asdict(needs) | {"total": needs.total},
            "printed_gib": asdict(says) | {"total": says.total},
            "printed_alone": alone,
            "held_gib": held(holders, running.pids()),
            "ready_after_s": running.ready_after_s,
        },
    )
    bench.results.put("memory_used_gib", title, used)


def measure_lab(
    bench: Bench, model: Model, device: Device, budgets: Sequence[int], load: Load
) -> None:
    """The trained pair of the package on one GPU: linear against one tree after the other."""
    with ExitStack() as stack:
        linear = bench.launch(stack, bench.service(model, None, device))
        trees = [bench.launch(stack, bench.service(model, budget, device)) for budget in budgets]
        if not bench.ready(linear):
            return
        for tree in trees:
            if bench.ready(tree):
                _note_contest(bench, linear, tree, load, tree.service.title)
                for running in (linear, tree):
                    _note_profile(bench, running)


def measure_pinned(
    bench: Bench, model: Model, pair: tuple[Device, Device], budget: int, load: Load
) -> None:
    """Linear and a tree on a GPU each, swapped half way; then the tree is killed."""
    first, second = pair
    halves = (
        _pinned_half(bench, model, (first, second), budget, load, kill=False),
        _pinned_half(bench, model, (second, first), budget, load, kill=True),
    )
    if halves[0] is not None and halves[1] is not None:
        both = joined(halves[0], halves[1])
        bench.results.put("contests", "pinned, both halves", document(both))


def _pinned_half(
    bench: Bench,
    model: Model,
    places: tuple[Device, Device],
    budget: int,
    load: Load,
    *,
    kill: bool,
) -> Run | None:
    results = bench.results
    title = f"pinned, linear on GPU {places[0].index}, tree on GPU {places[1].index}"
    with ExitStack() as stack:
        linear = bench.launch(stack, bench.service(model, None, places[0]))
        tree = bench.launch(stack, bench.service(model, budget, places[1]))
        if not (bench.ready(linear) and bench.ready(tree)):
            return None
        seen = results.attempt(
            f"sight, {title}", lambda: pinned.sight((linear, tree), bench.sglang)
        )
        if seen is not None:
            results.put("pinned_sight", title, seen)
        run = _note_contest(bench, linear, tree, load, title)
        if kill:
            survived = results.attempt(
                f"kill, {title}", lambda: pinned.survive(linear, killed=tree)
            )
            if survived is not None:
                results.put("pinned_kill", title, survived)
        return run


def _note_contest(
    bench: Bench, linear: Running, tree: Running, load: Load, title: str
) -> Run | None:
    run = bench.results.attempt(
        f"contest {title}", lambda: contest(linear, tree, load), needs_s=CONTEST_S
    )
    if run is not None:
        bench.results.put("contests", title, document(run))
        if tree.service.off_spine:
            bench.results.attempt(f"off the spine, {title}", lambda: verify_off_spine(run, title))
    return run
