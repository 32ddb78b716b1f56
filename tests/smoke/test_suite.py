"""The smoke suite on the real lab server, and on engines with one planted fault each."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ddtree_ops_cli.engine_api.client import EngineClient
from ddtree_ops_cli.lab.decode import Sampling, Step
from ddtree_ops_cli.smoke.suite import Outcome, run_suite
from tests.lab.random_pair import write_random_pair
from tests.lab_server import ScriptedEngine, lab_process, served

CHECKS = [
    "readiness",
    "model id",
    "determinism",
    "re-derivation",
    "parity with linear",
    "off-spine acceptance",
    "repetition",
    "acceptance floor",
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_random_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def linear(
    pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineClient]:
    log = tmp_path_factory.mktemp("linear") / "log"
    with (
        lab_process(pair[0], *speculating(pair, "DFLASH"), log=log) as process,
        EngineClient(process.url) as client,
    ):
        yield client


def speculating(pair: tuple[Path, Path], algorithm: str) -> list[str]:
    return [
        *("--speculative-algorithm", algorithm),
        *("--speculative-draft-model-path", str(pair[1])),
    ]


def suite(url: str, linear: EngineClient | None = None, name: str = "lab") -> dict[str, Outcome]:
    seen: list[Outcome] = []
    with EngineClient(url) as engine:
        outcomes = run_suite(engine, served_name=name, linear=linear, on_outcome=seen.append)
    assert seen == outcomes
    assert [outcome.check for outcome in outcomes] == CHECKS
    return {outcome.check: outcome for outcome in outcomes}


def verdicts(found: dict[str, Outcome]) -> dict[str, str]:
    return {check: outcome.verdict for check, outcome in found.items()}


def figure(found: dict[str, Outcome], check: str, name: str) -> float:
    value = found[check].figures[name]
    assert not isinstance(value, str)
    return value


def test_the_tree_of_the_lab_passes(
    pair: tuple[Path, Path], linear: EngineClient, tmp_path: Path
) -> None:
    with lab_process(pair[0], *speculating(pair, "DDTREE"), log=tmp_path / "log") as process:
        found = suite(process.url, linear)

    assert set(verdicts(found).values()) == {"passed"}, found
    assert figure(found, "re-derivation", "positions") >= 24
    assert figure(found, "off-spine acceptance", "off_spine") > 0
    assert figure(found, "acceptance floor", "accept_length") > 1.5


def test_a_linear_service_has_no_tree_and_nothing_to_compare_with(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    with lab_process(pair[0], *speculating(pair, "DFLASH"), log=tmp_path / "log") as process:
        found = suite(process.url)

    missing = {"parity with linear", "off-spine acceptance"}
    assert {check for check, verdict in verdicts(found).items() if verdict != "passed"} == missing
    assert {found[check].verdict for check in missing} == {"not exercised"}
    assert "--start-linear" in found["parity with linear"].detail


def test_a_plain_service_has_no_drafter(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with lab_process(pair[0], log=tmp_path / "log") as process:
        found = suite(process.url)

    assert found["acceptance floor"].verdict == "not exercised"
    assert found["off-spine acceptance"].verdict == "not exercised"
    assert found["re-derivation"].verdict == "passed"


def test_another_model_on_the_port_is_asked_nothing_more(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    with lab_process(pair[0], log=tmp_path / "log") as process:
        found = suite(process.url, name="qwen3.6-27b")
        log = process.log.read_text()

    assert found["model id"].verdict == "failed"
    assert "/v1/models lists lab, not qwen3.6-27b" in found["model id"].detail
    assert set(verdicts(found).values()) == {"passed", "failed", "not exercised"}
    assert found["determinism"].detail == "mend model id first"
    assert "POST" not in log


def test_no_server_at_all_is_a_failed_readiness(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with lab_process(pair[0], log=tmp_path / "log") as process:
        process.popen.kill()
        process.popen.wait()
        found = suite(process.url)

    assert found["readiness"].verdict == "failed"
    assert "refused" in found["readiness"].detail
    assert {outcome.verdict for check, outcome in found.items() if check != "readiness"} == {
        "not exercised"
    }


# Engines that are scripted. A sound one continues any sequence with a token that depends on all of
# it, so that a wrong token anywhere changes everything after it.


def sound(sequence: Sequence[int]) -> int:
    digest = hashlib.blake2b(repr(list(sequence)).encode(), digest_size=2).digest()
    return int.from_bytes(digest, "big") % 250


def smoke_of(
    engine: ScriptedEngine, pair: tuple[Path, Path], linear: EngineClient | None = None
) -> dict[str, Outcome]:
    with served(engine, pair[0]) as server:
        return suite(server.url, linear)


def test_a_sound_scripted_engine_passes(pair: tuple[Path, Path]) -> None:
    with (
        served(ScriptedEngine(sound, off_spine=1), pair[0], algorithm="DFLASH") as other,
        EngineClient(other.url) as linear,
    ):
        found = smoke_of(ScriptedEngine(sound, off_spine=1), pair, linear)

    assert set(verdicts(found).values()) == {"passed"}, found


def test_an_engine_that_changes_its_mind_is_not_deterministic(pair: tuple[Path, Path]) -> None:
    counter = itertools.count()

    class Moody(ScriptedEngine):
        def choose(self, sequence: Sequence[int], decoded: int) -> int:
            return next(counter) % 250 if decoded == 40 else self.follow(sequence)

    found = smoke_of(Moody(sound), pair)

    assert found["determinism"].verdict == "failed"
    assert found["determinism"].figures["position"] == 40
    assert "token 40" in found["determinism"].detail


@pytest.mark.parametrize("drifts_at", [1, 17, 60, 95])
def test_a_state_that_drifts_while_decoding_is_named_with_its_place(
    pair: tuple[Path, Path], drifts_at: int
) -> None:
    class Drifting(ScriptedEngine):
        def choose(self, sequence: Sequence[int], decoded: int) -> int:
            return (self.follow(sequence) + (decoded >= drifts_at)) % 250

    found = smoke_of(Drifting(sound), pair)

    assert found["determinism"].verdict == "passed"
    assert found["re-derivation"].verdict == "failed"
    place = found["re-derivation"].figures["position"]
    assert isinstance(place, int)
    assert drifts_at <= place <= drifts_at + 4
    assert f"token {place} of the answer" in found["re-derivation"].detail


def test_a_tree_that_answers_otherwise_than_the_chain_has_no_parity(
    pair: tuple[Path, Path],
) -> None:
    class Other(ScriptedEngine):
        def choose(self, sequence: Sequence[int], decoded: int) -> int:
            return (self.follow(sequence) + (decoded == 33)) % 250

    with (
        served(ScriptedEngine(sound), pair[0], algorithm="DFLASH") as other,
        EngineClient(other.url) as linear,
    ):
        found = smoke_of(Other(sound), pair, linear)

    assert found["parity with linear"].verdict == "failed"
    assert found["parity with linear"].figures == {"prompt": 1, "position": 33, "near_ties": 0}
    assert "token 33" in found["parity with linear"].detail


class NearlyTied(ScriptedEngine):
    """Decoding takes, at `places`, the second of two tokens that the target likes alike."""

    places: tuple[int, ...] = ()

    def generate(self, prompt: Sequence[int], sampling: Sampling) -> Iterator[Step]:
        self.other = sampling.temperature > 0 and (sampling.seed or 0) % 2 == 1
        return super().generate(prompt, sampling)

    def choose(self, sequence: Sequence[int], decoded: int) -> int:
        shift = decoded in self.places or (decoded == 0 and self.other)
        return (self.follow(sequence) + shift) % 250


def test_a_near_tie_is_excused_and_said(pair: tuple[Path, Path]) -> None:
    engine = NearlyTied(sound)
    engine.places = (31,)  # one of the places that are derived again

    found = smoke_of(engine, pair)["re-derivation"]

    assert found.verdict == "passed"
    assert found.figures["near_ties"] == 1
    assert "1 of them near ties (31)" in found.detail


def test_near_ties_in_answer_after_answer_are_no_parity(pair: tuple[Path, Path]) -> None:
    engine = NearlyTied(sound)
    engine.places = (40,)
    with (
        served(ScriptedEngine(sound), pair[0], algorithm="DFLASH") as other,
        EngineClient(other.url) as linear,
    ):
        found = smoke_of(engine, pair, linear)["parity with linear"]

    assert found.verdict == "failed"  # every prompt parts, and only two are excused
    assert found.figures == {"prompt": 3, "position": 40, "near_ties": 2}


def test_more_than_a_few_near_ties_are_no_excuse(pair: tuple[Path, Path]) -> None:
    engine = NearlyTied(sound)
    engine.places = tuple(range(1, 96))

    found = smoke_of(engine, pair)

    assert found["re-derivation"].verdict == "failed"
    assert found["re-derivation"].figures["near_ties"] == 2


def test_a_tree_that_never_branches_is_not_exercised(pair: tuple[Path, Path]) -> None:
    found = smoke_of(ScriptedEngine(sound, off_spine=0), pair)

    assert found["off-spine acceptance"].verdict == "not exercised"
    assert "larger budget" in found["off-spine acceptance"].detail


def test_a_dead_drafter_fails_the_floor_and_nothing_else(pair: tuple[Path, Path]) -> None:
    found = smoke_of(ScriptedEngine(sound, tokens_per_step=1), pair)

    failed = {check for check, verdict in verdicts(found).items() if verdict == "failed"}
    assert failed == {"acceptance floor"}
    assert "accept length 1.00" in found["acceptance floor"].detail


def test_one_loop_for_every_prompt_is_a_broken_model(pair: tuple[Path, Path]) -> None:
    found = smoke_of(ScriptedEngine(lambda sequence: 33), pair)

    assert found["repetition"].verdict == "failed"
    assert "same loop" in found["repetition"].detail


def test_a_loop_that_the_target_does_not_want_is_a_stuck_state(pair: tuple[Path, Path]) -> None:
    class Stuck(ScriptedEngine):
        def choose(self, sequence: Sequence[int], decoded: int) -> int:
            return sequence[-3] if decoded > 30 else self.follow(sequence)

    found = smoke_of(Stuck(sound), pair)

    assert found["repetition"].verdict == "failed"
    assert "a state is stuck" in found["repetition"].detail


def test_a_loop_that_the_target_wants_is_its_own_affair(pair: tuple[Path, Path]) -> None:
    def looping(sequence: Sequence[int]) -> int:
        return sequence[-1] if sequence[-1] < 20 else sound(sequence)

    found = smoke_of(ScriptedEngine(looping, off_spine=1), pair)

    assert found["repetition"].verdict == "passed"
    assert figure(found, "repetition", "loops") > 0


def test_an_engine_that_breaks_off_fails_the_checks_that_need_it(pair: tuple[Path, Path]) -> None:
    class Broken(ScriptedEngine):
        def choose(self, sequence: Sequence[int], decoded: int) -> int:
            if decoded == 50:
                raise ArithmeticError("lost a state")
            return self.follow(sequence)

    found = smoke_of(Broken(sound), pair)

    assert found["readiness"].verdict == "passed"
    assert found["determinism"].verdict == "failed"
    assert "500 Internal Server Error" in found["determinism"].detail
    assert "lost a state" in found["determinism"].detail
