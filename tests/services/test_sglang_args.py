"""Profiles and flags in, command line out: whole, as a person would read it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import ddtree_ops_cli.lab
from ddtree_ops_cli.bundled import bundled
from ddtree_ops_cli.errors import UsageError
from ddtree_ops_cli.profiles.locate import Library
from ddtree_ops_cli.services.sglang_args import engine_args
from ddtree_ops_cli.services.spec import Overrides, ServiceSpec, decide

CASES = json.loads((Path(__file__).parent / "cases" / "argv.json").read_text())
LAB = Path(ddtree_ops_cli.lab.__file__).parent / "weights"


def spec_of(case: dict[str, Any], library: Library | None = None) -> ServiceSpec:
    library = library or Library([bundled("profiles")])
    return decide(
        library.host(case["host"]),
        library.service(case["service"]),
        library.model(case["model"]),
        case["gpu"],
        Overrides(**case["overrides"]),
    )


@pytest.mark.parametrize("case", CASES, ids=[case["behaviour"] for case in CASES])
def test_engine_gets_exactly_this_command_line(case: dict[str, Any]) -> None:
    assert shlex.join(engine_args(spec_of(case))) == case["argv"].format(lab=LAB)


def test_revisions_reach_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "pinned.yaml").write_text(
        "description: a pinned pair\nextends: qwen3.6-27b\n"
        "target_revision: abc123\ndrafter_revision: def456\n"
    )
    library = Library([tmp_path, bundled("profiles")])
    case = {"host": "lab", "service": "ddtree", "model": "pinned", "gpu": 0, "overrides": {}}
    line = shlex.join(engine_args(spec_of(case, library)))
    assert "--revision abc123" in line
    assert "--speculative-draft-model-revision def456" in line


def test_equal_decisions_have_equal_hashes_and_any_difference_another() -> None:
    base = CASES[0]
    assert spec_of(base).spec_hash == spec_of(base).spec_hash
    assert spec_of({**base, "overrides": {"budget": 17}}).spec_hash != spec_of(base).spec_hash
    assert spec_of({**base, "gpu": 1}).spec_hash != spec_of(base).spec_hash


@pytest.mark.parametrize(
    ("overrides", "flag"),
    [({"budget": 16}, "--budget"), ({"allow_hybrid_unsafe": True}, "--allow-hybrid-unsafe")],
)
def test_tree_flags_are_refused_for_a_service_without_a_tree(
    overrides: dict[str, Any], flag: str
) -> None:
    with pytest.raises(UsageError, match=f"{flag} is for a tree, and service plain runs none"):
        spec_of({**CASES[3], "overrides": overrides})


def test_a_drafting_service_is_refused_for_a_model_without_drafter(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "lone.yaml").write_text(
        "description: no drafter\ntarget: /models/lone\nserved_name: lone\n"
        "context_length: 512\nhybrid: false\n"
    )
    library = Library([tmp_path, bundled("profiles")])
    with pytest.raises(UsageError, match="needs a drafter, and model lone has none"):
        spec_of({**CASES[0], "model": "lone"}, library)
