"""Validate profiles: each file by itself, what it extends, and the profiles that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import forms
from .document import read
from .load import Loaded, examine
from .locate import KINDS, Entry, Library
from .problems import Place, Problem, suggestion
from .schema import HostProfile, Kind, ModelProfile, ServiceProfile


@dataclass(frozen=True, slots=True)
class Checked:
    file: Path
    problems: list[Problem]


def check_library(library: Library) -> list[Checked]:
    """Every file on the search path, hidden ones included."""
    return [
        _check(file, kind, library)
        for directory in library.directories
        for kind in KINDS
        for file in _yaml_files(directory / kind)
    ]


def check_paths(paths: Sequence[Path], kind: Kind | None, library: Library) -> list[Checked]:
    """Files and directories, on the search path or not; `kind` where no folder tells it."""
    return [checked for path in paths for checked in _check_path(path, kind, library)]


def description(entry: Entry, library: Library) -> str | None:
    """What a profile says that it is; None if it is invalid."""
    examined = examine(read(entry.file), entry.kind, entry.name, library)
    return str(examined.loaded.value.description) if examined.loaded else None


def _check_path(path: Path, kind: Kind | None, library: Library) -> Iterator[Checked]:
    kinds = [known for known in KINDS if (path / known).is_dir()]
    if kinds:
        around = Library([path, *library.directories])
        for inner in kinds:
            for file in _yaml_files(path / inner):
                yield _check(file, inner, around)
        return
    folder = path if path.is_dir() else path.absolute().parent
    kind = kind or next((known for known in KINDS if known == folder.absolute().name), None)
    if kind is None:
        yield Checked(path, [_without_kind(path)])
        return
    around = Library([folder.parent, *library.directories])
    for file in _yaml_files(path) if path.is_dir() else [path]:
        yield _check(file, kind, around)


def _without_kind(path: Path) -> Problem:
    place = Place(path, 1, 1)
    if not path.exists():
        return Problem(place, "no such file")
    what = "holds none of hosts/, models/, services/" if path.is_dir() else "of an unknown kind"
    return Problem(place, what, "say --kind hosts, models or services")


def _check(file: Path, kind: Kind, library: Library) -> Checked:
    start = Place(file, 1, 1)
    if file.suffix != ".yaml" and file.exists():
        return Checked(file, [Problem(start, "not read under this name", "rename it to .yaml")])
    problems = []
    if not re.fullmatch(forms.NAME, file.stem):
        what = f"{file.stem!r} is no name of a profile"
        problems.append(Problem(start, what, f"rename the file: expected {forms.NAME_FORM}"))
    examined = examine(read(file), kind, file.stem, library)
    problems += examined.problems
    if examined.loaded is not None:
        problems += _dangling(examined.loaded, library)
    return Checked(file, problems)


def _dangling(
    loaded: Loaded[HostProfile | ModelProfile | ServiceProfile], library: Library
) -> list[Problem]:
    """The names of other profiles that lead nowhere."""
    named: list[tuple[str, Kind, str | None]] = []
    if isinstance(loaded.value, HostProfile):
        named = [("model", "models", loaded.value.model)]
        named += [("service", "services", loaded.value.service)]
    elif isinstance(loaded.value, ServiceProfile):
        named = [("model", "models", loaded.value.model)]
    problems = []
    for key, kind, name in named:
        known = library.names(kind)
        if name is not None and name not in known:
            place = loaded.places.get((key,), Place(loaded.file, 1, 1))
            problems.append(Problem(place, f"{key}: no {key} '{name}'", suggestion(name, known)))
    return problems


def _yaml_files(folder: Path) -> list[Path]:
    """What looks like a profile, misnamed files too; editors' hidden files are not meant."""
    return sorted(
        file
        for file in folder.glob("*")
        if file.suffix in (".yaml", ".yml") and not file.name.startswith(".")
    )
