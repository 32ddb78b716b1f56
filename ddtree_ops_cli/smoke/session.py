"""What the checks share: the engines, the suite's prompts and their greedy answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..engine_api.acceptance import Acceptance, merged
from ..engine_api.answers import Completion, ServerInfo
from ..engine_api.client import EngineClient

PROMPTS = (
    "Write a Python class for a stack with push, pop and peek, and a short example of its use.",
    "Explain to a ten-year-old why the sea is salty, in about eight sentences.",
    "A train leaves at 9:40 and arrives at 13:05. How long is the journey? Show each step.",
    "Name eight rivers of Europe, one per line, each with one country that it crosses.",
    "Write a polite letter to a neighbour about a tree that shades the garden.",
    "What is the difference between a list and a tuple in Python? Give an example of each.",
)
"""Code, explanation, steps, list, letter, comparison: a tree branches elsewhere in each."""

ANSWER_TOKENS = 96
IDLE_SECONDS = 10.0
"""How long a flush of the cache waits for other requests to end."""


@dataclass(slots=True)
class Session:
    engine: EngineClient
    served_name: str
    linear: EngineClient | None
    prompts: tuple[str, ...] = PROMPTS
    answer_tokens: int = ANSWER_TOKENS
    positions: int = 32
    """Of an answer, that are derived again."""
    _answers: list[Completion] = field(default_factory=list)
    _info: ServerInfo | None = None

    @property
    def info(self) -> ServerInfo:
        if self._info is None:
            self._info = self.engine.server_info()
        return self._info

    @property
    def algorithm(self) -> str | None:
        return self.info.speculative_algorithm

    def answers(self) -> list[Completion]:
        """The engine's greedy answers to the suite's prompts, asked for once."""
        if not self._answers:
            self._answers = [self.ask(self.engine, prompt) for prompt in self.prompts]
        return self._answers

    def ask(self, engine: EngineClient, prompt: str, *, to_the_end: bool = False) -> Completion:
        """A greedy answer from a cold cache; `to_the_end` goes on after the end of sequence."""
        engine.flush_cache(wait=IDLE_SECONDS)
        options = {"ignore_eos": True} if to_the_end else {}
        return engine.chat(prompt, model=self.served_name, max_tokens=self.answer_tokens, **options)

    def acceptance(self) -> Acceptance | None:
        return merged(Acceptance.of(answer.meta) for answer in self.answers())
