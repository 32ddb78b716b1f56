"""Tables that are read at a glance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from .console import data

_STYLES = {
    **dict.fromkeys(("healthy", "passed"), "green"),
    **dict.fromkeys(("dead", "failed", "unhealthy", "unreachable", "invalid"), "red"),
    **dict.fromkeys(("starting", "not exercised", "stopped", "template"), "yellow"),
}


def _cell(value: object) -> Text:
    text = "-" if value is None else str(value)
    word = text.partition(":")[0]
    return Text(text, style=_STYLES.get(word, ""))


def show(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numeric: str = "",
    right: Iterable[str] = (),
) -> None:
    """Print a table to stdout.

    The columns named in `numeric` (space-separated) or `right` align right.
    """
    right = {*right, *numeric.split()}
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(_cell, row))
    data().print(table)
