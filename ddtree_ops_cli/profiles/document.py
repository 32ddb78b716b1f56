"""A YAML file as plain values, with the place of every key and value.

Only what JSON can say is accepted (mappings with text keys, lists, text, numbers, true, false,
null); anchors, aliases and merge keys (`<<`) are resolved here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .problems import Place, Problem, dotted, quoted

KeyPath = tuple[str | int, ...]

# A profile is a page of text; these bounds stop a device file or an alias bomb.
MOST_BYTES = 1_000_000
MOST_VALUES = 10_000
MOST_DEPTH = 50

# Escapes in a quoted text can make what no terminal or UTF-8 file should receive.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_TAG = "tag:yaml.org,2002:"
_SCALARS = {f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "timestamp")}
_MENDS = {
    r"'\\t'.*cannot start any token": "indent with spaces, not with a tab",
    r"mapping values are not allowed": "put text that holds ': ' in quotes, and check the indent",
    r"could not find expected ':'": "a line `key: value` is expected here",
    r"undefined alias": "an anchor must come before its alias",
    r"expected a single document": "one profile a file; remove the second `---`",
    r"expected <block end>": "check the indent of this line and of those above it",
}


@dataclass(slots=True)
class Document:
    file: Path
    values: dict[str, Any] | None = None
    """None if the file cannot be read at all."""
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    """Where each key stands (for an item of a list: the item)."""
    places: dict[KeyPath, Place] = field(default_factory=dict)
    """Where each value stands."""
    problems: list[Problem] = field(default_factory=list)


def read(file: Path) -> Document:
    """Never raises for what the file holds; `problems` says what is wrong."""
    try:
        if not file.is_file():
            what = "is a directory" if file.is_dir() else "no such file"
            if file.exists() and not file.is_dir():
                what = "not a regular file"
            return _unreadable(file, 1, 1, what)
        with file.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except OSError as error:
        return _unreadable(file, 1, 1, f"cannot be read: {error.strerror}")
    except ValueError:  # a path with a NUL
        return _unreadable(file, 1, 1, "no such file")
    if len(content) > MOST_BYTES:
        return _unreadable(file, 1, 1, f"larger than {MOST_BYTES // 1000} kB: not a profile")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
        byte = f"byte 0x{content[error.start]:02x} is not UTF-8"
        return _unreadable(file, line, column, byte, "save the file as UTF-8")
    return parse(text, file)


def parse(text: str, file: Path) -> Document:
    """`read` for text that is not (yet) in its file."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
        return _unreadable(
            file, line, column, f"character U+{error.character:04X} is not allowed", "remove it"
        )
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what = " ".join((error.problem or error.context or "unknown").split())
        if what.startswith("but") and error.context:
            what = f"{error.context}, {what}"
        elif error.context and error.context_mark and error.context_mark.line + 1 < line:
            what = f"{what}, {error.context} that begins on line {error.context_mark.line + 1}"
        mend = next((mend for sign, mend in _MENDS.items() if re.search(sign, what)), "")
        return _unreadable(file, line, column, f"not valid YAML: {what}", mend)
    except RecursionError:
        return _unreadable(file, 1, 1, "nested too deeply: not a profile")
    if root is None:
        return _unreadable(
            file, 1, 1, "the file is empty", "`ddtree profile list` names commented ones"
        )
    document = Document(file)
    if not isinstance(root, yaml.MappingNode):
        place = _Walk(document).place(root)
        document.problems.append(Problem(place, "not a mapping", "write `key: value` lines"))
        return document
    try:
        document.values = _Walk(document).value(root, ())
    except _TooLargeError as error:
        document.problems = [Problem(error.place, error.what)]
        document.values = None
    return document


def _unreadable(file: Path, line: int, column: int, what: str, mend: str = "") -> Document:
    return Document(file, problems=[Problem(Place(file, line, column), what, mend)])


class _TooLargeError(Exception):
    def __init__(self, place: Place, what: str) -> None:
        super().__init__(what)
        self.place = place
        self.what = what


class _Walk:
    """From YAML nodes to values; fills the document's places and problems on the way."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0
        self.constructor = yaml.SafeLoader("")

    def place(self, node: yaml.Node) -> Place:
        mark = node.start_mark
        return Place(self.document.file, mark.line + 1, mark.column + 1)

    def refuse(self, node: yaml.Node, what: str, mend: str = "") -> None:
        self.document.problems.append(Problem(self.place(node), what, mend))

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self.count += 1
        if self.count > MOST_VALUES:
            raise _TooLargeError(self.place(node), f"more than {MOST_VALUES} values: not a profile")
        if len(path) > MOST_DEPTH:  # also an anchor that holds its own alias
            raise _TooLargeError(
                self.place(node), "nested too deeply, or an alias inside its anchor"
            )
        self.document.places[path] = self.place(node)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            for index, item in enumerate(node.value):
                self.document.keys[(*path, index)] = self.place(item)
            return tuple(self.value(item, (*path, i)) for i, item in enumerate(node.value))
        if node.tag not in _SCALARS or not isinstance(node, yaml.ScalarNode):
            self.refuse(
                node, f"the tag {dotted([node.tag.replace(_TAG, '!!')])} is not known", "remove it"
            )
            return None
        try:
            scalar = self.constructor.construct_object(node)
        except (ValueError, OverflowError, yaml.YAMLError):
            self.refuse(node, f"{quoted(node.value)} cannot be read", "put text in quotes")
            return None
        if isinstance(scalar, str) and (bad := _UNPRINTABLE.search(scalar)):
            self.refuse(node, f"the text holds the character U+{ord(bad[0]):04X}", "remove it")
            return None
        return scalar

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                merged += _sources(value_node)
                continue
            key = self.key(key_node)
            if key is None:
                continue
            if key in values:
                first = self.document.keys[(*path, key)].line
                self.refuse(
                    key_node, f"'{dotted([key])}' is given twice", f"the first is on line {first}"
                )
                continue
            self.document.keys[(*path, key)] = self.place(key_node)
            values[key] = self.value(value_node, (*path, key))
        self.merge(merged, path, values, depth=0)
        return values

    def merge(
        self, sources: list[yaml.Node], path: KeyPath, values: dict[str, Any], depth: int
    ) -> None:
        """Adds what `values` lacks: an explicit key wins, then the first source that has it."""
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                self.refuse(source, "`<<` merges mappings only", "name the anchor of a mapping")
                continue
            self.count += 1
            if depth > MOST_DEPTH or self.count > MOST_VALUES:
                raise _TooLargeError(self.place(source), "too many `<<`: not a profile")
            nested: list[yaml.Node] = []
            for key_node, value_node in source.value:
                if key_node.tag == f"{_TAG}merge":
                    nested += _sources(value_node)
                elif (key := self.key(key_node)) is not None and key not in values:
                    self.document.keys[(*path, key)] = self.place(key_node)
                    values[key] = self.value(value_node, (*path, key))
            self.merge(nested, path, values, depth + 1)

    def key(self, node: yaml.Node) -> str | None:
        if isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}str":
            return str(node.value)
        text = f"the key '{node.value}'" if isinstance(node, yaml.ScalarNode) else "a key"
        self.refuse(node, f"{text} is not text", "put it in quotes")
        return None


def _sources(node: yaml.Node) -> list[yaml.Node]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else [node]
