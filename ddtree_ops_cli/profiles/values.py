"""A profile as a list of values: each with its meaning and with the line that set it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .complaints import expected
from .load import Loaded
from .schema import ServiceProfile
from .sections import Section


@dataclass(frozen=True, slots=True)
class Value:
    key: str
    value: Any
    origin: str
    """`file:line` or `default`."""
    meaning: str
    constraint: str


def values(loaded: Loaded[Section]) -> list[Value]:
    """Every value in the order of the schema; the sections that have no effect are left out."""
    found = _values(loaded, loaded.value, "")
    if isinstance(loaded.value, ServiceProfile) and loaded.value.algorithm != "DDTREE":
        return [value for value in found if not value.key.startswith("speculative.")]
    return list(found)


def said(value: object) -> str | None:
    """A value as YAML says it on one line; None for what is not set."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _values(loaded: Loaded[Section], section: Section, above: str) -> Iterator[Value]:
    for name, field in type(section).model_fields.items():
        key = f"{above}{name}"
        value = getattr(section, name)
        meaning, constraint = field.description or "", expected(field)
        if isinstance(value, Section):
            yield from _values(loaded, value, f"{key}.")
        elif isinstance(value, dict) and value:
            for inner, item in value.items():
                whole = f"{key}.{inner}"
                yield Value(whole, item, loaded.origin(whole), meaning, constraint)
        else:
            shown = None if value == {} else value
            yield Value(key, shown, loaded.origin(key), meaning, constraint)
