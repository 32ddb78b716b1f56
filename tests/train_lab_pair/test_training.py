"""The whole program on a toy: it learns, and a seed repeats it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tools.train_lab_pair import __main__ as program
from tools.train_lab_pair import data, shapes, train_drafter, train_target
from tools.train_lab_pair import evaluate as evaluator
from tools.train_lab_pair.generate import answer
from tools.train_lab_pair.questions import FAMILIES
from tools.train_lab_pair.shapes import END_OF_TEXT, IM_END, DrafterShape, TargetShape

CPU = torch.device("cpu")
TARGET = TargetShape(
    hidden=32, ffn=64, layers=2, attention_interval=2,
    heads=2, kv_heads=1, head_dim=16, rotary_dim=4,
    gdn_key_heads=1, gdn_value_heads=2, gdn_head_dim=16,
)  # fmt: skip
DRAFTER = DrafterShape(hidden=32, ffn=64, heads=2, kv_heads=1, head_dim=16, target_layer_ids=(0, 1))


@pytest.fixture(autouse=True)
def _toy_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_target, "TargetShape", lambda: TARGET)
    monkeypatch.setattr(train_drafter, "DrafterShape", lambda: DRAFTER)


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> tuple[data.Rows, data.Tokens]:
    """Exchanges in which the answer counts on from the question's last token."""
    path: Path = tmp_path_factory.mktemp("toy") / "train.npz"
    prompts = [[10 + n, 11 + n, 12 + n] for n in range(40)]
    answers = [[13 + n + i for i in range(8)] + [IM_END] for n in range(40)]
    data.save_answers(path, prompts, answers, [n % 4 for n in range(40)])
    rows, _ = data.load(path)
    return rows, rows.tokens


def _train(
    train: tuple[data.Rows, data.Tokens], seed: int, steps: int = 12
) -> tuple[train_target.Target, list[dict[str, float]]]:
    recipe = train_target.TargetRecipe(
        steps=steps, seed=seed, exchange_tokens=256, text_rows=1, text_width=32, peak_rate=1e-2
    )
    target, log = train_target.train_target(train, recipe, CPU)
    return target, log["curve"]


def test_the_same_seed_gives_the_same_weights(
    counting: tuple[data.Rows, data.Tokens],
) -> None:
    first, _ = _train(counting, seed=1)
    again, _ = _train(counting, seed=1)
    other, _ = _train(counting, seed=2)

    weights = first.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in again.state_dict().items())
    assert any(
        not torch.equal(weight, weights[name]) for name, weight in other.state_dict().items()
    )


@pytest.mark.usefixtures("_chance_forbidden")
def test_training_runs_with_deterministic_algorithms_only_and_a_drafter_repeats(
    counting: tuple[data.Rows, data.Tokens],
) -> None:
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
        torch.zeros(2).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))

    target, _ = _train(counting, seed=1)
    target.requires_grad_(requires_grad=False)
    recipe = train_drafter.DrafterRecipe(steps=4, tokens=256, anchors=3)
    drafter, log = train_drafter.train_drafter(target, counting[0], recipe, CPU)
    again, _ = train_drafter.train_drafter(target, counting[0], recipe, CPU)

    assert len(log["curve"]) == 2
    weights = drafter.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in again.state_dict().items())


@pytest.fixture
def _chance_forbidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that the end of the test restores it
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    program._forbid_chance()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    yield
    torch.use_deterministic_algorithms(mode=False)
    for enable in (
        torch.backends.cuda.enable_flash_sdp,
        torch.backends.cuda.enable_mem_efficient_sdp,
        torch.backends.cuda.enable_cudnn_sdp,
    ):
        enable(True)


def test_a_pair_learns_to_count_and_the_drafter_to_follow(
    counting: tuple[data.Rows, data.Tokens], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluator, "MAX_NEW_TOKENS", 12)
    rows, _ = counting
    target, curve = _train(counting, seed=1, steps=160)
    assert curve[-1]["answers"] < 0.1 * curve[0]["answers"]
    target.requires_grad_(requires_grad=False)
    prompts = [rows.prompt(i) for i in range(len(rows))]
    said = answer(target, prompts, max_new_tokens=12)
    assert said[5] == rows.row(5)[0][3:].tolist()

    recipe = train_drafter.DrafterRecipe(steps=160, tokens=256, anchors=3, peak_rate=5e-3)
    drafter, _ = train_drafter.train_drafter(target, rows, recipe, CPU)
    table, answers = evaluator.evaluate(target, drafter, rows, list(FAMILIES))

    assert answers == said
    linear = table["accept_length"]["all"]["linear"]
    assert linear["accept_length"] > 3
    assert linear["off_spine"] == 0


def test_sampling_differs_by_seed_and_ends_are_found(
    counting: tuple[data.Rows, data.Tokens],
) -> None:
    rows, _ = counting
    target, _ = _train(counting, seed=1, steps=2)
    prompts = [rows.prompt(i) for i in range(3)]

    def sampled(seed: int) -> list[list[int]]:
        return answer(target, prompts, max_new_tokens=6, temperature=1.0, seed=seed)

    assert sampled(1) == sampled(1) != sampled(2)
    for tokens in sampled(1):
        assert len(tokens) == 6 or tokens[-1] == IM_END
        assert END_OF_TEXT not in tokens[:-1]


def test_the_rate_rises_then_falls_to_its_floor() -> None:
    rates = [train_target.rate_at(step, 1000) for step in range(1000)]

    assert rates[0] < rates[50] < rates[99] == max(rates) == 1.0
    assert rates[999] == pytest.approx(0.02, abs=0.001)
    assert shapes.MASK == shapes.VOCAB_SIZE - 1
