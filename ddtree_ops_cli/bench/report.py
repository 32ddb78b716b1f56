"""The comparison for people: one table, one verdict, and what to be careful about."""

from __future__ import annotations

from collections.abc import Sequence

from ..output import tables
from ..output.console import data
from .comparison import Agreement, Comparison, Row
from .prompts import Prompt, Suite
from .record import Side
from .run import Run
from .stats import Ratio
from .verdict import cautions, verdict


def show(comparison: Comparison, run: Run, suite: Suite, sides: Sequence[Side]) -> None:
    arms = (comparison.first, comparison.second)
    rates = [f"{arm} tok/s" for arm in arms]
    ratio = "/".join(arms)
    columns = ("prompt", *rates, ratio, "95 %", "ms/step", "accept", "off-spine", "TTFT ms")
    tables.show(
        (*columns, "texts"),
        [_cells(row, arms, comparison) for row in (*comparison.prompts, comparison.overall)],
        numeric=" ".join(("ms/step", "accept", "off-spine")),
    )
    out = data()
    pair = " | ".join(arms)
    way = "; the arms took turns on one GPU" if run.in_turns else ""
    out.print(
        f"\nsuite {suite.name}, medians of {comparison.rounds} rounds{way}; a | b is {pair}",
        markup=False,
    )
    for side in sides:
        out.print(_side(side), markup=False)
    _show_reference(suite, arms)
    out.print()
    for line in (verdict(comparison), *cautions(comparison, run)):
        out.print(line, markup=False)


def _cells(row: Row, arms: Sequence[str], comparison: Comparison) -> list[object]:
    # Of a few rounds it is so wide that it only confuses; it is in the JSON.
    few = comparison.verdict == "too few rounds"
    figures = [row.arms[arm] for arm in arms]
    shares = [None if f.off_spine_share is None else 100 * f.off_spine_share for f in figures]
    return [
        row.prompt,
        *(_rate(f.decode_tok_s) for f in figures),
        None if row.ratio is None else f"{row.ratio.estimate:.3f}",
        None if few else _interval(row.ratio),
        _pair([f.step_ms for f in figures], 2),
        _pair([f.accept_length for f in figures], 2),
        None if shares[0] is None else f"{shares[0]:.1f} %",
        _pair([1000 * f.ttft_s for f in figures], 0),
        _agreement(row.agreement),
    ]


def _show_reference(suite: Suite, arms: Sequence[str]) -> None:
    known = [prompt for prompt in suite.prompts if all(arm in prompt.reference for arm in arms)]
    if not known:
        return
    sources = dict.fromkeys(prompt.reference_source or "the suite" for prompt in known)
    data().print(f"\nreference, not measured here: {', '.join(sources)}", markup=False)
    tables.show(
        ("prompt", *(f"{arm} tok/s" for arm in arms), "/".join(arms)),
        [_reference(prompt, arms) for prompt in known],
    )


def _reference(prompt: Prompt, arms: Sequence[str]) -> list[object]:
    first, second = (prompt.reference[arm] for arm in arms)
    return [prompt.id, _rate(first), _rate(second), f"{first / second:.3f}"]


def _side(side: Side) -> str:
    labels = side.instance.labels
    tree = "" if labels.budget is None else f", budget {labels.budget}, mode {labels.mode}"
    temporary = ", started for this run" if side.temporary else ""
    return f"{side.name}: {side.instance.title}{tree}, {labels.engine}{temporary}"


def _number(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _rate(value: float | None) -> str | None:
    """Of one width, so that rates stand under each other."""
    return None if value is None else f"{value:7.1f}"


def _pair(values: Sequence[float | None], digits: int) -> str:
    return " | ".join(_number(value, digits) or "-" for value in values)


def _interval(ratio: Ratio | None) -> str | None:
    if ratio is None or ratio.low is None:
        return None
    return f"{ratio.low:.3f} to {ratio.high:.3f}"


def _agreement(agreement: Agreement | None) -> str | None:
    if agreement is None:
        return None
    if agreement.same:
        return "identical"
    token = "" if agreement.token is None else f"token {agreement.token}"
    character = "" if agreement.character is None else f"character {agreement.character}"
    differing = agreement.rounds - agreement.identical
    places = ", ".join(place for place in (token, character) if place)
    return f"differ from {places}; {differing} of {agreement.rounds} rounds"
