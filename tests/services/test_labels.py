from __future__ import annotations

import pytest

from ddtree_ops_cli.services.labels import Labels

LABELS = Labels(
    host="lab", service="ddtree", model="lab-pair", served_name="lab-pair", gpu=1,
    bind="127.0.0.1", port=31001, algorithm="DDTREE", budget=16, mode="tree", engine="lab 0.1.0",
    spec_hash="0123456789ab", deployer="op@desk",
)  # fmt: skip


def test_labels_survive_the_way_to_the_host_and_back() -> None:
    mapping = LABELS.to_mapping()
    assert mapping["dev.ddtree.gpu"] == "1"
    assert Labels.from_mapping({**mapping, "com.example.other": "kept out"}) == LABELS


def test_an_absent_label_is_none_and_not_a_word() -> None:
    plain = Labels.from_mapping(
        {k: v for k, v in LABELS.to_mapping().items() if not k.endswith((".budget", ".mode"))}
    )
    assert (plain.budget, plain.mode) == (None, None)


@pytest.mark.parametrize(("key", "value"), [("gpu", "one"), ("port", None)])
def test_foreign_labels_are_refused(key: str, value: str | None) -> None:
    mapping = LABELS.to_mapping()
    if value is None:
        del mapping[f"dev.ddtree.{key}"]
    else:
        mapping[f"dev.ddtree.{key}"] = value
    with pytest.raises((KeyError, ValueError)):
        Labels.from_mapping(mapping)
