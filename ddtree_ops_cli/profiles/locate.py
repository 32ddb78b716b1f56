"""Which profiles there are: the search path, and the first file found for each name.

A directory of profiles holds `hosts/`, `models/` and `services/`; a profile's name is its file's
name without `.yaml`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from ..bundled import bundled
from ..errors import DdtreeError, ProfileError, UsageError
from . import forms
from .load import Loaded, load
from .problems import suggestion
from .schema import HostProfile, Kind, ModelProfile, ServiceProfile

KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Entry:
    """A profile's file on the search path."""

    kind: Kind
    name: str
    file: Path
    hidden_by: Path | None
    """The file of the same kind and name that is found first."""


class Library:
    """The profiles of some directories, the first directory first."""

    def __init__(self, directories: Iterable[Path]) -> None:
        unique: dict[Path, Path] = {}
        for directory in directories:
            unique.setdefault(directory.resolve(), directory)
        self.directories = tuple(unique.values())

    @classmethod
    def default(cls, extra: Path | None = None) -> Library:
        """`extra` (or $DDTREE_PROFILES), ./profiles, the user's own, the bundled.

        Raises UsageError if `extra` is no directory of profiles.
        """
        if extra is None and (named := os.environ.get("DDTREE_PROFILES")):
            extra = Path(named)
        if extra is not None and not any((extra / kind).is_dir() for kind in KINDS):
            what = "holds none of hosts/, models/, services/" if extra.is_dir() else "no such place"
            raise UsageError(
                what, where=str(extra), mend="--profiles takes a directory of profiles"
            )
        found = [extra] if extra is not None else []
        here = Path("profiles").absolute()
        # In a checkout of this project ./profiles is what is bundled: the user's own come first.
        if not (here.parent / "ddtree_ops_cli").is_dir():
            found.append(here)
        return cls([*found, user_directory(), bundled("profiles")])

    def host(self, name: str) -> Loaded[HostProfile]:
        """A host to work on. A template is refused: it has no address."""
        loaded: Loaded[HostProfile] = self.load("hosts", name)
        if loaded.value.template:
            file = user_directory() / "hosts" / f"{name}.yaml"
            raise UsageError(
                f"host '{name}' is a template without an address",
                mend=f"write {file} with: ddtree hosts add {name} --address A --user U",
            )
        return loaded

    def model(self, name: str) -> Loaded[ModelProfile]:
        return self.load("models", name)

    def service(self, name: str) -> Loaded[ServiceProfile]:
        return self.load("services", name)

    def load(self, kind: Kind, name: str) -> Loaded[Any]:
        """Any profile, templates included.

        Raises UsageError for an unknown name and ProfileError for an invalid profile.
        """
        for entry in self.list(kind):
            if entry.name == name:
                return load(entry.file, kind, name, self)
        raise UsageError(
            f"no {kind.removesuffix('s')} '{name}'", mend=suggestion(name, self.names(kind))
        )

    def kind_of(self, name: str) -> Kind:
        """The kind that has a profile of this name; UsageError if none or several have."""
        kinds = [kind for kind in KINDS if name in self.names(kind)]
        if len(kinds) == 1:
            return kinds[0]
        if kinds:
            what = f"'{name}' is in {' and in '.join(kinds)}"
            raise UsageError(what, mend=f"say which: {kinds[0]} {name}")
        known = [known for kind in KINDS for known in self.names(kind)]
        raise UsageError(f"no profile '{name}'", mend=suggestion(name, known))

    def targets(self) -> dict[str, Loaded[HostProfile] | ProfileError]:
        """The hosts that a sweep visits: all but templates. An invalid profile is its error."""
        found: dict[str, Loaded[HostProfile] | ProfileError] = {}
        for name in self.names("hosts"):
            try:
                loaded: Loaded[HostProfile] = self.load("hosts", name)
            except ProfileError as error:
                found[name] = error
            else:
                if not loaded.value.template:
                    found[name] = loaded
        return found

    def hosts(self, names: Sequence[str]) -> dict[str, Loaded[HostProfile] | DdtreeError]:
        """The hosts that these names mean, `@GROUP` all of a group; an invalid one is its error.

        Raises UsageError for a name or a group that nothing has.
        """
        found: dict[str, Loaded[HostProfile] | DdtreeError] = {}
        for name in names:
            if name.startswith("@"):
                found |= self._group(name.removeprefix("@"))
                continue
            try:
                found[name] = self.host(name)
            except ProfileError as error:
                if len(names) == 1:
                    raise
                found[name] = error
        return found

    def _group(self, group: str) -> dict[str, Loaded[HostProfile] | DdtreeError]:
        known: set[str] = set()
        found: dict[str, Loaded[HostProfile] | DdtreeError] = {}
        for name, host in self.targets().items():
            groups = host.value.groups if isinstance(host, Loaded) else ()
            known |= set(groups)
            if group in groups:
                found[name] = host
        if not found:
            raise UsageError(
                f"no host is in the group '{group}'",
                mend=suggestion(group, sorted(known))
                if known
                else "add `groups: [NAME]` to the profiles of its hosts",
            )
        return found

    def list(self, kind: Kind) -> list[Entry]:
        """Every file of the kind in the order of the search path, hidden ones included."""
        first: dict[str, Path] = {}
        entries = []
        for directory in self.directories:
            for file in profile_files(directory / kind):
                hidden_by = first.get(file.stem)
                first.setdefault(file.stem, file)
                entries.append(Entry(kind, file.stem, file, hidden_by))
        return entries

    def names(self, kind: Kind) -> Sequence[str]:
        return [entry.name for entry in self.list(kind) if entry.hidden_by is None]

    def extended(self, kind: Kind, name: str, *, by: Path) -> Path | None:
        """The file that `extends: name` means in the file `by`.

        A profile that extends its own name extends the one that it hides.
        """
        files = [entry.file for entry in self.list(kind) if entry.name == name]
        resolved = [file.resolve() for file in files]
        if by.stem == name and by.resolve() in resolved:
            files = files[resolved.index(by.resolve()) + 1 :] or files
        return files[0] if files else None


def kind_named(word: str) -> Kind:
    """`hosts` for `hosts` or `host`; UsageError for what is no kind of profile."""
    for kind in KINDS:
        if word in (kind, kind.removesuffix("s")):
            return kind
    raise UsageError(f"no kind of profile '{word}'", mend=suggestion(word, KINDS))


def user_directory() -> Path:
    """The user's own profiles: $XDG_CONFIG_HOME/ddtree/profiles, by default under ~/.config."""
    from platformdirs import user_config_path

    return user_config_path("ddtree") / "profiles"


def profile_files(folder: Path) -> list[Path]:
    """The files of a kind's folder that have a profile's name, sorted."""
    try:
        found = sorted(folder.glob("*.yaml"))
    except OSError:
        return []
    return [file for file in found if re.fullmatch(forms.NAME, file.stem)]
