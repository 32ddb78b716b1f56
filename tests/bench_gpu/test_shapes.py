"""The made-up models have the sizes that the real ones are known to have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from ddtree_ops_cli.profiles.locate import Library
from ddtree_ops_cli.services.shapes import GIB
from tools.bench_gpu.shapes import DRAFTER, TARGET, pair, write_pair


def test_the_layers_are_those_of_the_27b_target() -> None:
    kinds = TARGET["layer_types"]
    assert len(kinds) == TARGET["num_hidden_layers"] == DRAFTER["num_target_layers"] == 64
    assert kinds == [*["linear_attention"] * 3, "full_attention"] * 16


def test_drafter_and_target_fit_together() -> None:
    for key in ("hidden_size", "vocab_size"):
        assert DRAFTER[key] == TARGET[key]
    assert max(DRAFTER["dflash_config"]["target_layer_ids"]) < TARGET["num_hidden_layers"]
    assert DRAFTER["dflash_config"]["mask_token_id"] < TARGET["vocab_size"]


def test_bytes_are_those_that_a_gpu_was_seen_to_allocate() -> None:
    """SGLang loads 50.1 and 3.2 GiB for these two, and writes 151 MB of state for a node."""
    found = pair()
    assert found.target_bytes / GIB == pytest.approx(50.1, abs=0.05)
    assert found.drafter_bytes / GIB == pytest.approx(3.2, abs=0.05)
    assert found.target.recurrence is not None
    assert found.target.recurrence.state_bytes(4) == pytest.approx(151e6, rel=0.03)


def test_a_forced_token_is_a_letter_and_a_prompt_is_its_bytes(tmp_path: Path) -> None:
    target, drafter = write_pair(tmp_path)
    assert json.loads((target / "config.json").read_text()) == TARGET
    assert json.loads((drafter / "config.json").read_text()) == DRAFTER
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 256
    assert tokenizer.encode("2+2, é").ids == list("2+2, é".encode())
    # The first token of random weights is any of 248,320: beyond the vocabulary it has no text.
    assert tokenizer.decode([200_000, 100, 100]) == "dd"


def test_the_model_profile_says_the_same() -> None:
    from ddtree_ops_cli.bundled import bundled

    model = Library([bundled("profiles")]).model("qwen3.6-27b").value
    assert model.block_size == DRAFTER["block_size"]
    assert model.context_length == TARGET["max_position_embeddings"]
    assert model.hybrid
