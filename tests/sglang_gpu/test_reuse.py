"""Chats of several turns: what a tree leaves in the prefix cache is the accepted path's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from tests.sglang_gpu.answers import Outputs, Server
from tests.sglang_gpu.fleet import BUDGETS, FLEET, linear_of, on
from tests.sglang_gpu.judge import TIE, compared
from tests.sglang_gpu.questions import Prompt, as_tokens, suite, tokenizer, user

Serve = Callable[[str], Server]
Note = Callable[..., None]

TOKENS = 160
TOGETHER = 4
NAMES = [
    *(f"tree-{budget}-bf16" for budget in (8, 16, 32, 64)),
    "tree-16-bf16-as-shipped",
    "tree-16-bf16-no-overlap",
    "tree-16-bf16-tp2",
    *(f"tree-{budget}-f32" for budget in BUDGETS),
]
FOLLOW_UPS = (
    "Write a Python function that returns the largest of the items. Use a for loop.",
    "Explain the quicksort algorithm in 3 sentences.",
)


@dataclass
class Chats:
    """Chats of three turns, several at a time, each answer of TOKENS tokens."""

    first: list[Prompt] = field(default_factory=list)
    first_answers: Outputs = field(default_factory=list)
    later: list[Prompt] = field(default_factory=list)
    later_answers: Outputs = field(default_factory=list)
    begun_inside: int = 0
    """Later turns that began on a state of a token which a tree had decoded."""


def follow_up(prompt: Prompt, answer: Sequence[int], text: str) -> Prompt:
    between = tokenizer().encode("\n", add_special_tokens=False)
    return [*prompt, *answer, *between, *as_tokens([user(text)])]


def chats(server: Server) -> Chats:
    def chat(prompt: Prompt) -> tuple[list[Prompt], Outputs, int]:
        prompts, answers, inside = [prompt], [], 0
        for turn in range(len(FOLLOW_UPS) + 1):
            answer = server.generate(prompts[-1], TOKENS, ignore_eos=True)
            answers.append(answer["output_ids"])
            inside += turn > 0 and answer["meta_info"]["cached_tokens"] > len(prompts[-2])
            if turn < len(FOLLOW_UPS):
                prompts.append(follow_up(prompts[-1], answers[-1], FOLLOW_UPS[turn]))
        return prompts, answers, inside

    found = Chats()
    with ThreadPoolExecutor(TOGETHER) as pool:
        for prompts, answers, inside in pool.map(chat, suite()):
            found.first.append(prompts[0])
            found.first_answers.append(answers[0])
            found.later += prompts[1:]
            found.later_answers += answers[1:]
            found.begun_inside += inside
    return found


@pytest.mark.parametrize("name", on(*NAMES))
def test_a_turn_on_reused_states_is_what_the_chain_says_without_reuse(
    name: str, server: Serve, note: Note
) -> None:
    running, cold = server(name), server(linear_of(name))
    assert not FLEET[cold.name].reuses
    found = chats(running)
    fresh = cold.outputs(found.later, TOKENS, TOGETHER, ignore_eos=True)
    verdict = compared(found.later, found.later_answers, fresh)
    turns = len(found.later)
    note(server=name, turns=turns, begun_inside=found.begun_inside, verdict=str(verdict))
    assert found.begun_inside >= turns // 4, "states of decoded tokens must be reused"
    assert verdict.worst <= TIE[FLEET[name].dtype], verdict
