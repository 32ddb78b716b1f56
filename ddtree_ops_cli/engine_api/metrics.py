"""The Prometheus text format, as far as an engine's counters and gauges need it.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text, version 0.0.4).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Metrics:
    """Samples by name; each has one value per set of labels."""

    samples: dict[str, dict[tuple[tuple[str, str], ...], float]]

    def total(self, name: str) -> float | None:
        """The sum over all labels (a server may split a counter by `is_streaming` or by rank)."""
        values = self.samples.get(name)
        return sum(values.values()) if values else None


def parse(text: str) -> Metrics:
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for name, labels, value in _lines(text):
        samples.setdefault(name, {})[labels] = value
    return Metrics(samples)


def _lines(text: str) -> Iterator[tuple[str, tuple[tuple[str, str], ...], float]]:
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if found is None:
            continue
        try:
            value = float(found.group(3))
        except ValueError:
            continue
        labels = tuple(sorted(_LABEL.findall(found.group(2) or "")))
        yield found.group(1), labels, value
