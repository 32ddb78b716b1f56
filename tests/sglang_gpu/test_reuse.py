"""Chats of several turns: what a tree leaves in the prefix cache is the accepted path's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sglang_gpu.answers import Outputs, Server
from tests.sglang_gpu.fleet import FLEET, linear_of, on
from tests.sglang_gpu.judge import TIE, compared
from tests.sglang_gpu.questions import Prompt, as_tokens, suite, tokenizer, user

Serve = Callable[[str], Server]
Note = Callable[..., None]

TOKENS = 160
NAMES = [
    *(f"tree-{budget}-bf16" for budget in (8, 16, 32, 64)),
    "tree-16-bf16-no-overlap",
    "tree-16-bf16-tp2",
    "tree-16-f32",
    "tree-64-f32",
]
FOLLOW_UPS = (
    "Write a Python function that returns the largest of the items. Use a for loop.",
    "Explain the quicksort algorithm in 3 sentences.",
)


def turns(server: Server, prompt: Prompt) -> tuple[list[Prompt], Outputs, int]:
    """Prompts and answers of three turns, and how often a turn began inside an earlier answer."""
    between = tokenizer().encode("\n", add_special_tokens=False)
    prompts, answers, inside = [prompt], [], 0
    for turn in range(len(FOLLOW_UPS) + 1):
        answer = server.generate(prompts[-1], TOKENS)
        answers.append(answer["output_ids"])
        inside += turn > 0 and answer["meta_info"]["cached_tokens"] > len(prompts[-2])
        if turn < len(FOLLOW_UPS):
            asked = as_tokens([user(FOLLOW_UPS[turn])])
            prompts.append([*prompts[-1], *answers[-1], *between, *asked])
    return prompts, answers, inside


@pytest.mark.parametrize("name", on(*NAMES))
def test_a_turn_on_reused_states_is_what_the_chain_says_without_reuse(
    name: str, server: Serve, note: Note
) -> None:
    running, cold = server(name), server(linear_of(name))
    assert not FLEET[cold.name].reuses
    asked: list[Prompt] = []
    warm: Outputs = []
    inside = 0
    for prompt in suite():
        prompts, answers, reused = turns(running, prompt)
        asked += prompts[1:]
        warm += answers[1:]
        inside += reused
    fresh = cold.outputs(asked, TOKENS)
    verdict = compared(asked, warm, fresh)
    note(server=name, turns=len(asked), begun_inside_an_answer=inside, verdict=str(verdict))
    assert inside >= len(asked) // 5, "states of decoded tokens must be reused"
    assert verdict.worst <= TIE[FLEET[name].dtype], verdict
