"""A host's clock beside this machine's."""

from __future__ import annotations

import pytest

from ddtree_ops_cli.hosts.clock import Clock, warn_if_off
from ddtree_ops_cli.hosts.unknown import Unknown


@pytest.mark.parametrize(
    ("offset_s", "says"),
    [
        (0.4, "0.4 s ahead of this machine's"),
        (-59.0, "59.0 s behind this machine's"),
        (10_805.2, "3 h ahead of this machine's"),
        (-7_800.0, "2 h 10 min behind this machine's"),
    ],
)
def test_a_difference_is_told_as_people_say_it(offset_s: float, says: str) -> None:
    assert str(Clock(offset_s, 0.0)) == says


@pytest.mark.parametrize(
    ("clock", "warned"),
    [
        (Clock(2.4, 0.5), False),
        (Clock(2.6, 0.5), True),
        (Clock(-2.6, 0.5), True),
        # Over a slow line nothing is certain.
        (Clock(9.0, 8.0), False),
        (Unknown("did not end in time", None), False),
    ],
)
def test_only_what_a_slow_answer_does_not_explain_is_warned_of(
    capsys: pytest.CaptureFixture[str], clock: Clock | Unknown, warned: bool
) -> None:
    warn_if_off("ct200", clock)
    assert ("the clock of ct200 is 2.6 s" in capsys.readouterr().err) is warned
