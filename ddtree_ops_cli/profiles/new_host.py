"""A host profile of the user's own, written from another one with its comments kept."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError

from ..errors import DdtreeError, ProfileError, UsageError
from . import forms
from .complaints import complaints
from .document import parse
from .load import examine
from .locate import Library, user_directory
from .problems import Place, refusal, suggestion
from .schema import HostProfile


@dataclass(frozen=True, slots=True)
class NewHost:
    name: str
    file: Path
    text: str


def draft(
    library: Library,
    name: str,
    *,
    address: str,
    user: str | None,
    port: int | None,
    model: str | None,
    source: str,
) -> NewHost:
    """The file that would be written; nothing is.

    Raises UsageError for a value that is not valid, or a source that is no docker host.
    """
    if not re.fullmatch(forms.NAME, name):
        raise UsageError(f"{name!r} is no name of a host", mend=f"expected {forms.NAME_FORM}")
    # What the copied one is described as may not be true of this one.
    described = "GPU server, containers over SSH"
    flags = {"description": described, "address": address, "user": user, "port": port}
    flags |= {"model": model}
    given: dict[str, object] = {key: flag for key, flag in flags.items() if flag is not None}
    _check_given(given, library)
    _check_not_this_machine(library, name)
    template = library.load("hosts", source)
    if template.value.runtime != "docker":
        raise UsageError(
            f"host '{source}' is this machine", mend="--from takes a docker host such as ct200"
        )
    text = _without_template(template.file.read_text("utf-8-sig"), template.file)
    for key, value in given.items():
        text = _with(text, key, value, template.file)
    file = user_directory() / "hosts" / f"{name}.yaml"
    examined = examine(parse(text, file), "hosts", name, library)
    if examined.loaded is None:
        raise refusal(examined.problems)
    wanted = template.value.model_dump() | {"template": False} | given
    if examined.loaded.value.model_dump() != wanted:
        raise DdtreeError(
            "laid out in a way that cannot be copied",
            where=str(template.file),
            mend="put each key on a line of its own, or take another --from",
        )
    return NewHost(name, file, text)


def write(host: NewHost, *, force: bool) -> None:
    """Create the file whole or not at all.

    Raises UsageError if it exists and `force` is not set.
    """
    exists = UsageError("exists already", where=str(host.file), mend="--force replaces it")
    try:
        host.file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{host.name}.", dir=host.file.parent)
        draft_file = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(host.text)
                stream.flush()
                os.fsync(stream.fileno())
            if force:
                draft_file.replace(host.file)
            else:  # a link, unlike a rename, never replaces what another process just wrote
                host.file.hardlink_to(draft_file)
        finally:
            draft_file.unlink(missing_ok=True)
    except FileExistsError:
        raise exists from None
    except OSError as error:
        raise DdtreeError(f"cannot be written: {error.strerror}", where=str(host.file)) from None


def _check_given(given: dict[str, object], library: Library) -> None:
    assumed = {"description": "new", "runtime": "docker", "model": "any"}
    try:
        HostProfile.model_validate(assumed | given)
    except ValidationError as error:
        nowhere = Place(Path(), 1, 1)
        first = complaints(error, HostProfile, {}, {}, nowhere)[0]
        raise UsageError(f"--{first.what}", mend=first.mend) from None
    models = library.names("models")
    if "model" in given and given["model"] not in models:
        model = str(given["model"])
        raise UsageError(f"no model '{model}'", mend=suggestion(model, models))


def _check_not_this_machine(library: Library, name: str) -> None:
    try:
        taken = name in library.names("hosts") and library.load("hosts", name)
    except ProfileError:  # an invalid one may be replaced
        return
    if taken and taken.value.runtime == "process":
        raise UsageError(f"host '{name}' is this machine", mend="choose another name")


def _without_template(text: str, file: Path) -> str:
    """Without the line `template: ...`, the comment that stands directly above, and a blank."""
    place = parse(text, file).keys.get(("template",))
    if place is None:
        return text
    lines = text.splitlines(keepends=True)
    begin = end = place.line - 1
    while begin > 0 and lines[begin - 1].startswith("#"):
        begin -= 1
    end += 1
    if end < len(lines) and not lines[end].strip():
        end += 1
    return "".join(lines[:begin] + lines[end:])


def _with(text: str, key: str, value: object, file: Path) -> str:
    """With `key: value`: on its line, else where a comment keeps its place, else at the end."""
    line = f"{key}: {_scalar(value)}"
    place = parse(text, file).keys.get((key,))
    lines = text.splitlines()
    placeholder = re.compile(rf"#\s*{key}:")
    if place is not None:
        comment = re.search(r"\s+#.*", lines[place.line - 1])
        lines[place.line - 1] = line + (comment[0] if comment else "")
    elif index := next((i for i, old in enumerate(lines) if placeholder.match(old)), None):
        lines[index] = line
    else:
        lines += ["", line]
    return "\n".join(lines) + "\n"


def _scalar(value: object) -> str:
    """A value as YAML reads it back: text like `on` or `1e3` needs quotes."""
    text = str(value)
    try:
        plain = yaml.safe_load(text) == value
    except (ValueError, yaml.YAMLError):  # such as a date that does not exist
        plain = False
    return text if plain else f'"{text}"'
