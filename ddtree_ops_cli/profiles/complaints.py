"""What the schema refuses, in the words of the file: place, key, value, what is expected."""

from __future__ import annotations

import datetime
import types
import typing
from typing import Any, Literal

import annotated_types
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from .document import KeyPath
from .problems import Place, Problem, dotted, quoted, suggestion
from .sections import Section

_BOUNDS = {
    annotated_types.Ge: "at least",
    annotated_types.Gt: "above",
    annotated_types.Le: "at most",
    annotated_types.Lt: "below",
}


def complaints(
    error: ValidationError,
    schema: type[Section],
    keys: dict[KeyPath, Place],
    places: dict[KeyPath, Place],
    start: Place,
) -> list[Problem]:
    """`keys` and `places` say where keys and values stand, `start` where a missing key would."""
    found = []
    for detail in error.errors(include_url=False):
        path: KeyPath = tuple(part for part in detail["loc"] if part != "[key]")
        key, kind, value = dotted(path), detail["type"], detail["input"]
        at_key = keys.get(path, start)
        at_value = places.get(path, at_key)
        field, annotation = _declared(schema, path)
        if kind == "conflicts":
            for conflict, cause, what, mend in detail["ctx"]["all"]:
                # Of two keys that disagree, the one to change is in the file at hand.
                both = [keys[inner] for k in (conflict, cause) if (inner := (*path, k)) in keys]
                here = [place for place in both if place.file == start.file]
                found.append(Problem([*here, *both, start][0], what, mend))
        elif kind == "extra_forbidden":
            found.append(_unknown(schema, path, at_key))
        elif kind == "missing":
            mend = f"expected {expected(field)}: {field.description}" if field else ""
            found.append(Problem(at_value, f"'{key}' is missing", mend))
        elif kind == "value_error":
            said = "" if isinstance(value, dict | tuple) else f" is {_said(value)}"
            form = _form(field)
            mend = f"expected {form}" if form else ""
            found.append(Problem(at_value, f"{key}{said}: {detail['ctx']['error']}", mend))
        elif "[key]" in detail["loc"]:
            advice = suggestion(str(path[-1]), _choices(_key_type(schema, path)))
            found.append(Problem(at_key, f"unknown key '{key}'", advice))
        else:
            whole = field is not None and annotation is field.annotation
            wanted = expected(field) if field and whole else _type(annotation)
            found.append(
                Problem(at_value, f"{key} is {_said(value)}", _mend(value, annotation, wanted))
            )
    return found


def expected(field: FieldInfo) -> str:
    """The constraint of a field in words: `a whole number (nodes), at least 1`."""
    if form := _form(field):
        return form
    extra = field.json_schema_extra
    unit = f" ({extra['unit']})" if isinstance(extra, dict) and "unit" in extra else ""
    return f"{_type(field.annotation)}{unit}{_bounds(field.metadata)}"


def _unknown(schema: type[Section], path: KeyPath, place: Place) -> Problem:
    section = _plain(_declared(schema, path[:-1])[1])
    word = str(path[-1])
    advice = suggestion(word, list(section.model_fields))
    if not advice.startswith("did"):
        # The right word in the wrong section is the commonest slip after a typo.
        homes = [home for home in _all_keys(schema) if home.rpartition(".")[2] == word]
        advice = f"did you mean {homes[0]}" if homes else advice
    return Problem(place, f"unknown key '{dotted(path)}'", advice)


def _mend(value: object, annotation: Any, wanted: str) -> str:
    kind = _plain(annotation)
    choices = _choices(kind)
    if isinstance(value, bool) and (kind is str or choices):
        return f"expected {wanted}; YAML reads yes, no, on, off as true, false: put it in quotes"
    if isinstance(value, str) and choices:
        guess = suggestion(value, choices)
        return guess if guess.startswith("did") else f"expected {wanted}"
    if isinstance(value, int | float | datetime.date) and kind is str:
        return f"expected {wanted}; put it in quotes"
    if isinstance(value, str) and kind in (int, float) and value.strip().isdecimal():
        return f"expected {wanted}; write it without quotes"
    return f"expected {wanted}"


def _said(value: object) -> str:
    """A value as the file says it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, tuple):
        return "a list"
    if isinstance(value, datetime.date):
        return f"the date {value.isoformat()}"
    if value is None:
        return "empty"
    return f"the text {quoted(value)}" if isinstance(value, str) else quoted(value)


def _declared(schema: type[Section], path: KeyPath) -> tuple[FieldInfo | None, Any]:
    """The field that `path` leads to or into, and the type that is declared there."""
    field: FieldInfo | None = None
    annotation: Any = schema
    for part in path:
        kind = _plain(annotation)
        if isinstance(kind, type) and issubclass(kind, Section):
            field = kind.model_fields.get(str(part))
            annotation = field.annotation if field else None
        else:
            # a list's items, a mapping's values
            inner = typing.get_args(kind) or (None,)
            annotation = inner[0] if typing.get_origin(kind) is tuple else inner[-1]
    return field, annotation


def _key_type(schema: type[Section], path: KeyPath) -> Any:
    return typing.get_args(_plain(_declared(schema, path[:-1])[1]))[0]


def _all_keys(schema: type[Section], above: str = "") -> list[str]:
    found = []
    for name, field in schema.model_fields.items():
        found.append(f"{above}{name}")
        kind = _plain(field.annotation)
        if isinstance(kind, type) and issubclass(kind, Section):
            found += _all_keys(kind, f"{above}{name}.")
    return found


def _plain(annotation: Any) -> Any:
    """`X` for `X | None`."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next(arg for arg in typing.get_args(annotation) if arg is not type(None))
    return annotation


def _choices(annotation: Any) -> list[str]:
    kind = _plain(annotation)
    is_literal = typing.get_origin(kind) is Literal
    return [str(choice) for choice in typing.get_args(kind)] if is_literal else []


def _type(annotation: Any) -> str:
    kind = _plain(annotation)
    if choices := _choices(kind):
        return f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
    if typing.get_origin(kind) is tuple:
        return f"a list, each item {_type(typing.get_args(kind)[0])}"
    if typing.get_origin(kind) is dict:
        return f"`name: value` lines, each value {_type(typing.get_args(kind)[1])}"
    if isinstance(kind, type) and issubclass(kind, Section):
        return "a section of `key: value` lines"
    return {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, "text")


def _bounds(metadata: list[Any]) -> str:
    limits = {type(item): item for item in metadata}
    low, high = limits.get(annotated_types.Ge), limits.get(annotated_types.Le)
    if low and high:
        return f" from {low.ge} to {high.le}"
    found = []
    for kind, word in _BOUNDS.items():
        if kind in limits:
            found.append(f"{word} {getattr(limits[kind], kind.__name__.lower()):g}")
    return f", {' and '.join(found)}" if found else ""


def _form(field: FieldInfo | None) -> str:
    extra = field.json_schema_extra if field else None
    return str(extra.get("form", "")) if isinstance(extra, dict) else ""
