from __future__ import annotations

from pathlib import Path

import pytest

from ddtree_ops_cli.profiles.load import Loaded
from ddtree_ops_cli.profiles.locate import Library
from ddtree_ops_cli.profiles.schema import ServiceProfile

BASE = """\
description: the base
algorithm: DDTREE
speculative:
  budget: 32
  topk_cap: 4
engine:
  extra_args: [--one, --two]
container:
  env:
    A: "1"
    B: "2"
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def service(*texts: str) -> Loaded[ServiceProfile]:
    """The first of the texts as a service; the texts are in s0.yaml, s1.yaml, ..."""
    folder = Path("services")
    folder.mkdir()
    for index, text in enumerate(texts):
        (folder / f"s{index}.yaml").write_text(text)
    return Library([Path()]).service("s0")


def test_a_key_overrides_and_its_neighbours_are_inherited() -> None:
    loaded = service("extends: s1\nspeculative:\n  budget: 8\n", BASE)

    assert loaded.value.speculative.budget == 8
    assert loaded.value.speculative.topk_cap == 4
    assert loaded.value.extends == "s1"
    assert loaded.origin("speculative.budget") == "services/s0.yaml:3"
    assert loaded.origin("speculative.topk_cap") == "services/s1.yaml:5"
    assert loaded.origin("speculative.chain_seed") == "default"
    assert loaded.origin("speculative") == "services/s0.yaml:2"
    assert loaded.origin("algorithm") == "services/s1.yaml:2"


def test_an_empty_value_takes_an_inherited_one_back() -> None:
    loaded = service(
        "extends: s1\nspeculative: {topk_cap: }\ncontainer: {env: {A: }}\nengine:\n", BASE
    )

    assert loaded.value.speculative.topk_cap == 8
    assert loaded.origin("speculative.topk_cap") == "default"
    assert loaded.value.container.env == {"B": "2"}
    assert loaded.value.engine.extra_args == ()


def test_a_chain_extends_a_tree_by_dropping_its_section() -> None:
    loaded = service("extends: s1\nalgorithm: DFLASH\nspeculative:\n", BASE)

    assert loaded.value.algorithm == "DFLASH"


def test_a_section_dropped_half_way_does_not_come_back() -> None:
    loaded = service(
        "extends: s1\nspeculative: {topk_cap: 2}\n", "extends: s2\nspeculative:\n", BASE
    )

    assert loaded.value.speculative.topk_cap == 2
    assert loaded.value.speculative.budget == 16
    assert loaded.origin("speculative.budget") == "default"


def test_lists_are_replaced_whole() -> None:
    loaded = service("extends: s1\nengine: {extra_args: [--three]}\n", BASE)

    assert loaded.value.engine.extra_args == ("--three",)


def test_the_nearest_of_three_generations_wins() -> None:
    loaded = service(
        "extends: s1\n", "extends: s2\nspeculative: {budget: 64}\ndescription: middle\n", BASE
    )

    assert loaded.value.speculative.budget == 64
    assert loaded.value.description == "middle"
    assert loaded.value.extends == "s1"
    assert loaded.origin("speculative.budget") == "services/s1.yaml:2"


def test_a_profile_of_the_same_name_extends_the_one_it_hides() -> None:
    for directory, text in (("near", "extends: s\nspeculative: {budget: 8}\n"), ("far", BASE)):
        (Path(directory) / "services").mkdir(parents=True)
        (Path(directory) / "services" / "s.yaml").write_text(text)

    loaded = Library([Path("near"), Path("far")]).service("s")

    assert loaded.file == Path("near/services/s.yaml")
    assert loaded.value.speculative.budget == 8
    assert loaded.origin("algorithm") == "far/services/s.yaml:2"


def test_anchors_aliases_and_merge_keys_keep_their_lines() -> None:
    loaded = service(
        "description: &text anchored\n"
        "algorithm: DDTREE\n"
        "model: *text\n"
        "speculative: &s\n"
        "  budget: 7\n"
        "engine: {page_size: 1}\n"
        "container:\n"
        "  env: &env {A: one, B: two}\n"
    )
    assert loaded.value.model == "anchored"
    assert loaded.origin("model") == "services/s0.yaml:3"

    (Path("services") / "merge.yaml").write_text(
        "description: merges\n"
        "algorithm: none\n"
        "engine: &base\n"
        "  page_size: 1\n"
        "  random_seed: 2\n"
        "  <<: {page_size: 3, context_length: 4}\n"
    )
    merged = Library([Path()]).service("merge")
    assert merged.value.engine.page_size == 1  # an explicit key wins
    assert merged.value.engine.context_length == 4
    assert merged.origin("engine.context_length") == "services/merge.yaml:6"
