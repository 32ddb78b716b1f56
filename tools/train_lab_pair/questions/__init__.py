"""Generated questions and answers in four families; held-out contents never enter training."""

from . import chat, code, explanation, short_answer
from .exchange import Ask, Exchange, draw

FAMILIES: dict[str, Ask] = {
    "code": code.ask,
    "explanation": explanation.ask,
    "short answer": short_answer.ask,
    "chat": chat.ask,
}
STORY_PROMPTS = (code.STORY, explanation.STORY, short_answer.STORY)

__all__ = ["FAMILIES", "STORY_PROMPTS", "Ask", "Exchange", "draw"]
