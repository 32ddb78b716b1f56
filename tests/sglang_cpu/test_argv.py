"""Every command line that the profiles can produce is one that the patched SGLang understands."""

from __future__ import annotations

import argparse
from itertools import product

import pytest
from sglang.srt.server_args import ServerArgs

from ddtree_ops_cli.bundled import bundled
from ddtree_ops_cli.profiles.locate import Library
from ddtree_ops_cli.services.sglang_args import engine_args
from ddtree_ops_cli.services.spec import Overrides, decide

BUNDLED = bundled("profiles")
LIBRARY = Library([BUNDLED])


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    ServerArgs.add_cli_args(parser)
    return parser


def names(kind: str) -> list[str]:
    return [entry.name for entry in LIBRARY.list(kind)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The bundled profiles, with an address for the host that is only a template."""
    mine = tmp_path_factory.mktemp("profiles")
    (mine / "hosts").mkdir()
    template = (BUNDLED / "hosts" / "ct200.yaml").read_text()
    assert "template: true" in template
    (mine / "hosts" / "ct200.yaml").write_text(
        template.replace("template: true", "address: gpu.example\nuser: operator")
    )
    return Library([mine, BUNDLED])


@pytest.mark.parametrize(
    ("host", "service", "model"),
    [
        (host, service, model)
        for host, service, model in product(names("hosts"), names("services"), names("models"))
        # The lab's own weights are on this machine only; no argv is made of them elsewhere.
        if host == "lab" or model != "lab-pair"
    ],
)
def test_bundled_profiles(
    parser: argparse.ArgumentParser, library: Library, host: str, service: str, model: str
) -> None:
    loaded = library.service(service)
    tree = loaded.value.algorithm == "DDTREE"
    changes = Overrides(budget=32, allow_hybrid_unsafe=True) if tree else Overrides()
    for overrides in (Overrides(), changes):
        spec = decide(library.host(host), loaded, library.model(model), 0, overrides)
        parsed = parser.parse_args(engine_args(spec))
        assert parsed.model_path == spec.target
        assert parsed.speculative_algorithm == (
            None if spec.algorithm == "none" else spec.algorithm
        )
        if spec.tree is not None:
            assert parsed.speculative_ddtree_budget == spec.tree.budget
            assert parsed.speculative_ddtree_topk_cap == spec.tree.topk_cap
            assert parsed.speculative_ddtree_mode == spec.tree.mode
            assert parsed.speculative_ddtree_allow_hybrid_unsafe == spec.tree.allow_hybrid_unsafe


def test_every_engine_option_of_a_profile_is_a_flag(parser: argparse.ArgumentParser) -> None:
    engine = type(LIBRARY.service("ddtree").value.engine)
    options = set(engine.model_fields) - {"extra_args"}
    assert options
    flags = set(parser._option_string_actions)
    assert {f"--{option.replace('_', '-')}" for option in options} <= flags
