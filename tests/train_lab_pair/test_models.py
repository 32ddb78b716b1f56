"""The PyTorch target and drafter: equal to other forms of themselves, and to transformers."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from tools.train_lab_pair import gated_delta
from tools.train_lab_pair.drafter import Drafter
from tools.train_lab_pair.shapes import DrafterShape, TargetShape, target_config
from tools.train_lab_pair.target import Target

TARGET = TargetShape(
    vocab=4096, hidden=32, ffn=64, layers=4, heads=4, head_dim=16, rotary_dim=4,
    gdn_key_heads=2, gdn_value_heads=4, gdn_head_dim=8,
)  # fmt: skip
DRAFTER = DrafterShape(
    hidden=32, ffn=64, heads=4, head_dim=8, block_size=4, target_layer_ids=(0, 2)
)


def small_target(seed: int = 0) -> Target:
    torch.manual_seed(seed)
    target = Target(TARGET).requires_grad_(requires_grad=False)
    for name, weight in target.named_parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=0.2)
        elif "norm" in name:
            weight += 0.1 * torch.randn(weight.shape)
    return target


@pytest.mark.parametrize("time", [1, 31, 32, 33, 100])
def test_the_chunked_delta_rule_equals_the_step_by_step_one(time: int) -> None:
    torch.manual_seed(time)
    shape = (2, time, 3, 8)
    q, k = (torch.nn.functional.normalize(torch.randn(shape), dim=-1) for _ in range(2))
    v, g, beta = torch.randn(shape), -3 * torch.rand(shape[:3]), torch.rand(shape[:3])

    expected, last = gated_delta.recurrent(q, k, v, g, beta, torch.zeros(2, 3, 8, 8))
    got, state = gated_delta.chunked(q, k, v, g, beta)

    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state, last, rtol=1e-4, atol=1e-5)


def test_the_target_equals_transformers() -> None:
    target = small_target()
    config = target_config(TARGET)
    for key in ("architectures", "full_attention_interval", "mamba_ssm_dtype", "dtype"):
        del config[key]
    theirs = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**config)).eval()
    theirs.load_state_dict(target.state_dict())
    tokens = torch.randint(TARGET.vocab, (2, 70))

    with torch.no_grad():
        expected = theirs(tokens, output_hidden_states=True)
        hidden, kept = target(tokens, keep_layers=(0, 2))

    torch.testing.assert_close(target.lm_head(hidden), expected.logits, rtol=1e-4, atol=1e-4)
    assert kept is not None
    features = torch.cat([expected.hidden_states[i + 1] for i in (0, 2)], -1)
    torch.testing.assert_close(kept, features, rtol=1e-4, atol=1e-4)


def test_one_token_at_a_time_gives_the_logits_of_the_whole_sequence() -> None:
    target = small_target()
    tokens = torch.randint(TARGET.vocab, (3, 40))
    expected = target.lm_head(target(tokens)[0])

    caches = target.new_cache(3, 40, tokens.device)
    for place in range(40):
        logits = target.step(tokens[:, place], torch.full((3,), place), caches)
        torch.testing.assert_close(logits, expected[:, place], rtol=1e-4, atol=1e-4)


def _draft(features: Tensor, roots: Tensor, anchors: Tensor) -> Tensor:
    torch.manual_seed(1)
    drafter = Drafter(DRAFTER).requires_grad_(requires_grad=False)
    for weight in drafter.parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=0.2)
    embed = torch.nn.Embedding(4096, DRAFTER.hidden)
    return drafter(features, roots, anchors, embed)


def test_a_block_sees_the_context_before_its_anchor_and_no_other_block() -> None:
    torch.manual_seed(0)
    features = torch.randn(1, 12, 64)
    roots, anchors = torch.tensor([[7, 9]]), torch.tensor([[5, 10]])
    before = _draft(features, roots, anchors)

    at_the_anchor = features.clone()
    at_the_anchor[:, 5] += 1
    torch.testing.assert_close(_draft(at_the_anchor, roots, anchors)[:, 0], before[:, 0])
    just_before = features.clone()
    just_before[:, 4] += 1
    assert not torch.allclose(_draft(just_before, roots, anchors)[:, 0], before[:, 0])
    other_root = roots.clone()
    other_root[0, 1] = 11
    changed = _draft(features, other_root, anchors)
    torch.testing.assert_close(changed[:, 0], before[:, 0])
    assert not torch.allclose(changed[:, 1], before[:, 1])


def test_many_blocks_at_once_equal_each_block_alone() -> None:
    torch.manual_seed(0)
    features = torch.randn(1, 12, 64)
    roots, anchors = torch.tensor([[7, 9, 3]]), torch.tensor([[5, 10, 1]])
    together = _draft(features, roots, anchors)

    for block in range(3):
        place = int(anchors[0, block])
        one = slice(block, block + 1)
        alone = _draft(features[:, :place], roots[:, one], anchors[:, one])
        torch.testing.assert_close(alone, together[:, one], rtol=1e-5, atol=1e-5)


def test_the_pair_that_is_shipped_stays_under_32_megabytes() -> None:
    target, drafter = Target(TargetShape()), Drafter(DrafterShape())
    elements = sum(p.numel() for model in (target, drafter) for p in model.parameters())

    assert 2 * elements < 32e6
    assert dataclasses.asdict(DrafterShape())["block_size"] == 16
