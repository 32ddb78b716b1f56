from __future__ import annotations

from pathlib import Path

import pytest

from ddtree_ops_cli.bundled import bundled
from ddtree_ops_cli.profiles.check import check_library
from ddtree_ops_cli.profiles.document import read
from ddtree_ops_cli.profiles.locate import KINDS, Library
from ddtree_ops_cli.profiles.schema import SCHEMAS
from ddtree_ops_cli.profiles.sections import Section
from ddtree_ops_cli.profiles.values import values

LIBRARY = Library([bundled("profiles")])
FILES = [entry.file for kind in KINDS for entry in LIBRARY.list(kind)]


def test_every_bundled_profile_is_valid() -> None:
    checked = check_library(LIBRARY)

    assert {each.file.stem for each in checked} == {
        *("lab", "ct200"),
        *("lab-pair", "qwen3.6-27b"),
        *("ddtree", "dflash-linear", "plain"),
    }
    assert [problem for each in checked for problem in each.problems] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_key_is_explained_by_a_comment_above_it(file: Path) -> None:
    lines = file.read_text().splitlines()
    for path, place in read(file).keys.items():
        if not isinstance(path[-1], str) or path == ("description",):
            continue
        above = place.line - 2
        while lines[above].strip() and not lines[above].lstrip().startswith("#"):
            above -= 1  # neighbours may share a comment
        assert lines[above].lstrip().startswith("#"), f"{file}:{place.line}: {path} lacks a comment"


def fields(section: type[Section], above: str = "") -> list[tuple[str, str | None]]:
    found = []
    for name, field in section.model_fields.items():
        found.append((f"{above}{name}", field.description))
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found += fields(field.annotation, f"{above}{name}.")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_the_schemas_is_described(kind: str) -> None:
    schema = next(schema for name, schema in SCHEMAS.items() if name == kind)
    assert [key for key, description in fields(schema) if not description] == []


def test_values_that_have_no_effect_are_not_shown() -> None:
    keys = {value.key for value in values(LIBRARY.service("plain"))}

    assert "engine.page_size" in keys
    assert not any(key.startswith("speculative") for key in keys)


def test_the_three_services_differ_by_the_algorithm_alone() -> None:
    tree, linear, plain = (
        LIBRARY.service(name).value for name in ("ddtree", "dflash-linear", "plain")
    )
    assert tree.engine == linear.engine == plain.engine
    assert tree.container == linear.container == plain.container
    assert (tree.algorithm, linear.algorithm, plain.algorithm) == ("DDTREE", "DFLASH", "none")
