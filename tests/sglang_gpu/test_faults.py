"""Each planted fault must be seen by the comparison that the other tests rest on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sglang_gpu.answers import Server
from tests.sglang_gpu.fleet import FINE, KEPT_STATES, faults, on
from tests.sglang_gpu.judge import TIE, compared
from tests.sglang_gpu.questions import suite
from tests.sglang_gpu.test_greedy import once, tokens_and_steps
from tests.sglang_gpu.test_reuse import TOGETHER, TOKENS, chats

Serve = Callable[[str], Server]
Note = Callable[..., None]

OF_GRAPHS = "mask-lost-in-capture"
OF_KEYS_AND_VALUES = "cache-left-behind"
OF_STATES = sorted(set(faults()) - {*FINE, OF_GRAPHS})


@pytest.mark.parametrize("name", on(*(f"fault-{fault}" for fault in OF_STATES)))
def test_a_fault_is_more_than_a_tie(name: str, server: Serve, folder: Path, note: Note) -> None:
    faulty, linear = server(name), server("linear-bf16")
    reference = once(folder, "faults", lambda: linear.outputs(suite(), TOKENS))
    verdict = compared(suite(), faulty.outputs(suite(), TOKENS), reference)
    note(server=name, verdict=str(verdict))
    assert verdict.worst > TIE["bfloat16"], verdict


@pytest.mark.xdist_group(f"fault-{OF_KEYS_AND_VALUES}")
def test_a_fault_of_keys_and_values_is_more_than_a_tie(server: Serve, note: Note) -> None:
    """Few layers of the pair attend, and weakly: bf16 would hide it."""
    faulty, linear = server(f"fault-{OF_KEYS_AND_VALUES}"), server("linear-f32")
    answers, reference = (
        one.outputs(suite(), 3 * TOKENS, TOGETHER, ignore_eos=True) for one in (faulty, linear)
    )
    verdict = compared(suite(), answers, reference)
    note(server=faulty.name, verdict=str(verdict))
    assert verdict.worst > TIE["float32"], verdict


@pytest.mark.xdist_group(f"fault-{OF_GRAPHS}")
def test_a_fault_of_captured_graphs_changes_the_steps_of_eager_passes(
    server: Serve, note: Note
) -> None:
    replayed = tokens_and_steps(server(f"fault-{OF_GRAPHS}"))
    eager = tokens_and_steps(server("eager"))
    note(server=OF_GRAPHS, answers=len(eager), equal=sum(map(list.__eq__, replayed, eager)))
    assert replayed != eager


@pytest.mark.parametrize("name", on(*(f"fault-{fault}" for fault in KEPT_STATES)))
def test_a_fault_of_kept_states_is_seen_in_later_turns_alone(
    name: str, server: Serve, note: Note
) -> None:
    faulty, linear = server(name), server("linear-f32")
    found = chats(faulty)
    first, later = (
        compared(asked, answers, linear.outputs(asked, TOKENS, TOGETHER, ignore_eos=True))
        for asked, answers in (
            (found.first, found.first_answers),
            (found.later, found.later_answers),
        )
    )
    note(server=name, begun_inside=found.begun_inside, first=str(first), verdict=str(later))
    assert first.worst <= TIE["float32"], first
    assert later.worst > TIE["float32"], later
