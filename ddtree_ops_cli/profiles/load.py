"""From a profile's file, and those that it extends, to one checked value.

A key without a value (`key:`) means the default; in a profile that extends another it takes the
inherited value back. Lists are replaced whole, sections are merged key by key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import ValidationError

from .complaints import complaints
from .document import Document, KeyPath, read
from .problems import Place, Problem, refusal, shown, suggestion
from .schema import SCHEMAS, Kind
from .sections import Section

if TYPE_CHECKING:
    from .locate import Library

T = TypeVar("T", bound=Section, covariant=True)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """A valid profile, and where each of its values was written."""

    kind: Kind
    name: str
    file: Path
    value: T
    places: Mapping[KeyPath, Place]

    def origin(self, key: str) -> str:
        """`file:line` of a dotted key like `speculative.budget`, or `default`."""
        place = self.places.get(tuple(key.split(".")))
        return f"{shown(place.file)}:{place.line}" if place else "default"


@dataclass(frozen=True, slots=True)
class Examined:
    """A profile that may be invalid: `loaded` is None exactly if there are problems."""

    loaded: Loaded[Any] | None
    problems: list[Problem]


def load(file: Path, kind: Kind, name: str, library: Library) -> Loaded[Any]:
    """Raises ProfileError with all the problems of the file, a line each."""
    examined = examine(read(file), kind, name, library)
    if examined.loaded is None:
        raise refusal(examined.problems)
    return examined.loaded


def examine(document: Document, kind: Kind, name: str, library: Library) -> Examined:
    """Check a document with what it extends; `library` is asked for the latter."""
    layers, problems = _layers(document, kind, library)
    if layers is None:
        return Examined(None, problems)
    values: dict[str, Any] = {}
    keys: dict[KeyPath, Place] = {}
    places: dict[KeyPath, Place] = {}
    for layer in layers:
        values = _overlay(values, layer.values or {})
        keys |= layer.keys
        places |= layer.places
    try:
        value = SCHEMAS[kind].model_validate(values)
    except ValidationError as error:
        known = {problem.place for problem in problems}
        start = Place(document.file, 1, 1)
        found = complaints(error, SCHEMAS[kind], keys, places, start)
        # A value that could not be read is not missing as well.
        problems += [problem for problem in found if problem.place not in known]
    if problems:
        return Examined(None, problems)
    written = {path: place for path, place in keys.items() if _holds(values, path)}
    return Examined(Loaded(kind, name, document.file, value, written), [])


def _layers(
    document: Document, kind: Kind, library: Library
) -> tuple[list[Document] | None, list[Problem]]:
    """The documents that make up a profile, the most basic first; None if one is unusable."""
    layers, problems = [document], list(document.problems)
    while kind != "hosts":
        top = layers[0]
        parent = (top.values or {}).get("extends")
        if not isinstance(parent, str):
            break
        place = top.places[("extends",)]
        file = library.extended(kind, parent, by=top.file)
        if file is None:
            what = f"extends: no {kind.removesuffix('s')} '{parent}'"
            problems.append(Problem(place, what, suggestion(parent, library.names(kind))))
            return None, problems
        if any(_same(file, layer.file) for layer in layers):
            circle = " -> ".join(layer.file.stem for layer in [*reversed(layers)])
            what = f"extends goes in a circle: {circle} -> {file.stem}"
            problems.append(Problem(place, what, "one of them must stand alone"))
            return None, problems
        layers.insert(0, read(file))
        problems += layers[0].problems
    usable = all(layer.values is not None for layer in layers)
    return (layers if usable else None), problems


def _overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`; a value of None takes the key back."""
    result = dict(below)
    for key, value in above.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            under = result.get(key)
            result[key] = _overlay(under if isinstance(under, dict) else {}, value)
        else:
            result[key] = value
    return result


def _holds(values: Any, path: KeyPath) -> bool:
    for part in path:
        within = part in values if isinstance(values, dict) else isinstance(values, tuple)
        if not within or (isinstance(values, tuple) and int(part) >= len(values)):
            return False
        values = values[part]
    return True


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()
