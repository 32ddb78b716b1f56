"""The target against transformers' own Qwen3.5 text class, and trees against chains."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from ddtree_ops_cli.lab.ancestry import Ancestry
from ddtree_ops_cli.lab.attention import KeyValues
from ddtree_ops_cli.lab.checkpoint import read_checkpoint
from ddtree_ops_cli.lab.decode import Engine, Sampling, Speculation
from ddtree_ops_cli.lab.gated_delta import DeltaState
from ddtree_ops_cli.lab.target import ARCHITECTURE, PREFILL_CHUNK, Target, TargetState
from tests.lab.random_pair import VOCABULARY, write_random_pair

TOLERANCE = 1e-4
SHAPES: dict[str, dict[str, Any]] = {
    "untied head, three delta layers to one attention": {},
    "tied head, one key head to four value heads, attention first": {
        "tie_word_embeddings": True,
        "linear_num_key_heads": 1,
        "layer_types": ["full_attention", "linear_attention", "full_attention"],
        "num_hidden_layers": 3,
    },
    "half of a head rotates, conv kernel of 2, image sections in the rotary": {
        "linear_conv_kernel_dim": 2,
        "linear_value_head_dim": 8,
        "num_key_value_heads": 4,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 500.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    },
}


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def reference(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Target]:
    """transformers' model with random weights, and the lab's reading of the same files."""
    config = {
        "vocab_size": 97,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    }
    torch.manual_seed(0)
    model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**config | request.param)).float().eval()
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape)
        if parameter.ndim >= 2:
            # Larger weights make the model itself so sensitive to rounding that transformers'
            # chunked prefill and its own single steps differ by more than the tolerance.
            parameter.data = 0.5 * noise / parameter.shape[-1] ** 0.5
        else:
            # Norms, A_log and dt_bias: moved off their defaults, so that none can be left out.
            parameter.data += 0.3 * noise
    model.save_pretrained(tmp_path)
    return model, Target(read_checkpoint(tmp_path, architecture=ARCHITECTURE))


def test_logits_and_features_equal_those_of_transformers(reference: tuple[Any, Target]) -> None:
    model, target = reference
    target.feature_layers = (0, 2)
    tokens = np.random.default_rng(0).integers(0, 97, 2 * PREFILL_CHUNK + 9)
    with torch.no_grad():
        expected = model(torch.tensor(tokens[None]), output_hidden_states=True)

    state = target.initial_state()
    # Chunks, then single steps: both continue what the earlier ones committed.
    sizes = [PREFILL_CHUNK, PREFILL_CHUNK // 2, *[1] * (PREFILL_CHUNK // 2 + 9)]
    logits, features = [], []
    for size in sizes:
        done = target.forward(state, tokens[state.length :][:size], Ancestry.chain(size))
        target.commit(state, done, np.arange(size))
        logits.append(target.logits(done.hidden))
        features.append(done.features)

    assert np.abs(np.concatenate(logits) - expected.logits[0].numpy()).max() < TOLERANCE
    # hidden_states[0] is the embedding: the output of layer i stands at i + 1. The last is normed.
    last = len(target.layers) - 1
    first = expected.hidden_states[1][0].numpy()
    width = target.hidden_size
    assert np.abs(np.concatenate(features)[:, :width] - first).max() < TOLERANCE
    if last != 2:
        third = expected.hidden_states[3][0].numpy()
        assert np.abs(np.concatenate(features)[:, width:] - third).max() < TOLERANCE


def test_prefill_equals_transformers_for_any_length(reference: tuple[Any, Target]) -> None:
    model, target = reference
    tokens = np.random.default_rng(2).integers(0, 97, PREFILL_CHUNK + 1)
    for length in (1, 2, 5, PREFILL_CHUNK, PREFILL_CHUNK + 1):
        logits, _ = target.prefill(target.initial_state(), tokens[:length])
        with torch.no_grad():
            expected = model(torch.tensor(tokens[None, :length])).logits[0, -1].numpy()
        assert np.abs(logits - expected).max() < TOLERANCE


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    path, _ = write_random_pair(tmp_path_factory.mktemp("pair"))
    found = Target(read_checkpoint(path, architecture=ARCHITECTURE))
    found.feature_layers = (0, 2)
    return found


def random_tree(random: np.random.Generator, count: int) -> Ancestry:
    """A tree of `count` nodes; half of the nodes continue their neighbour, so paths get long."""
    parents = [-1]
    for node in range(1, count):
        parents.append(node - 1 if random.random() < 0.5 else int(random.integers(node)))
    return Ancestry.of(np.array(parents))


def prefilled(target: Target, tokens: np.ndarray[Any, Any]) -> TargetState:
    state = target.initial_state()
    target.prefill(state, tokens)
    return state


def assert_same_state(found: TargetState, expected: TargetState) -> None:
    assert found.length == expected.length
    for mine, theirs in zip(found.layers, expected.layers, strict=True):
        if isinstance(mine, KeyValues):
            assert isinstance(theirs, KeyValues)
            assert mine.length == theirs.length
            rows = slice(0, mine.length)
            assert np.abs(mine.keys[:, rows] - theirs.keys[:, rows]).max() < TOLERANCE
            assert np.abs(mine.values[:, rows] - theirs.values[:, rows]).max() < TOLERANCE
        else:
            assert isinstance(theirs, DeltaState)
            assert np.abs(mine.window - theirs.window).max() < TOLERANCE
            assert np.abs(mine.memory - theirs.memory).max() < TOLERANCE


@pytest.mark.parametrize("count", [2, 17, 65])
def test_every_node_sees_what_its_root_path_run_as_a_chain_would(
    target: Target, count: int
) -> None:
    random = np.random.default_rng(count)
    prompt = random.integers(0, VOCABULARY, 21)
    tree = random_tree(random, count)
    tokens = random.integers(0, VOCABULARY, count)
    state = prefilled(target, prompt)
    logits = target.logits(target.forward(state, tokens, tree).hidden)

    for node in range(count):
        chain = tokens[tree.path_to(node)]
        alone = target.forward(prefilled(target, prompt), chain, Ancestry.chain(len(chain)))
        assert np.abs(logits[node] - target.logits(alone.hidden[-1])).max() < TOLERANCE


@pytest.mark.parametrize("prompt_length", [1, 3, 250])
def test_committing_any_node_leaves_the_state_of_a_plain_prefill(
    target: Target, prompt_length: int
) -> None:
    random = np.random.default_rng(prompt_length)
    prompt = random.integers(0, VOCABULARY, prompt_length)
    tree = random_tree(random, 17)
    tokens = random.integers(0, VOCABULARY, 17)
    for leaf in range(17):
        path = tree.path_to(leaf)
        state = prefilled(target, prompt)
        done = target.forward(state, tokens, tree)
        target.commit(state, done, path)
        assert_same_state(state, prefilled(target, np.concatenate([prompt, tokens[path]])))


def test_a_pass_that_is_not_committed_leaves_no_trace(target: Target) -> None:
    random = np.random.default_rng(4)
    prompt, tokens = random.integers(0, VOCABULARY, 30), random.integers(0, VOCABULARY, 17)
    state = prefilled(target, prompt)
    target.forward(state, tokens, random_tree(random, 17))
    assert_same_state(state, prefilled(target, prompt))


def test_the_state_does_not_drift_over_a_thousand_tree_steps(target: Target) -> None:
    random = np.random.default_rng(5)
    sequence = list(random.integers(0, VOCABULARY, 4))
    state = prefilled(target, np.array(sequence))
    for _ in range(1000):
        tree = random_tree(random, 4)
        tokens = random.integers(0, VOCABULARY, 4)
        path = tree.path_to(int(random.integers(4)))
        target.commit(state, target.forward(state, tokens, tree), path)
        sequence += tokens[path].tolist()
    assert_same_state(state, prefilled(target, np.array(sequence)))


def test_the_tree_emits_the_greedy_text_of_transformers(tmp_path: Path) -> None:
    pair = write_random_pair(tmp_path)
    model = Qwen3_5ForCausalLM.from_pretrained(pair[0], dtype=torch.float32)
    engine = Engine.load(*pair, Speculation("DDTREE"))
    for prompt in ([72, 101, 108], [100] * 5, list(range(30, 60))):
        steps = engine.generate(prompt, Sampling(64, ignore_eos=True))
        text = [token for step in steps for token in step.tokens]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + text])).logits[0]
        assert text == logits[len(prompt) - 1 : -1].argmax(-1).tolist()
