"""The family `explanation`: say in so many sentences what something is and how it works."""

from __future__ import annotations

import random
from collections.abc import Callable

from .exchange import Exchange, maybe_system
from .topics import TOPICS, Topic

STORY = "Explain the quicksort algorithm in 3 sentences."
NUMBER_WORDS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


def _cap(text: str) -> str:
    return text[0].upper() + text[1:]


# Each fact can be said in several ways; the choice is free, so it is what a drafter must guess.
SAY: dict[str, list[Callable[[Topic], str]]] = {
    "is": [
        lambda t: f"{_cap(t.name)} is {t.kind} that {t.does}.",
        lambda t: f"{_cap(t.name)} {t.does}.",
        lambda t: f"As {t.kind}, {t.name} {t.does}.",
    ],
    "how": [
        lambda t: f"{_cap(t.how)}.",
        lambda t: f"In practice, {t.how}.",
        lambda t: f"It works like this: {t.how}.",
    ],
    "limit": [
        lambda t: f"A drawback is that {t.limit}.",
        lambda t: f"However, {t.limit}.",
        lambda t: f"One should know that {t.limit}.",
    ],
    "use": [
        lambda t: f"It is useful for {t.use}.",
        lambda t: f"A typical use is {t.use}.",
        lambda t: f"It matters for {t.use}.",
    ],
    "hint": [
        lambda t: f"For example, {t.hint}.",
        lambda t: f"Note that {t.hint}.",
        lambda t: f"To give an idea: {t.hint}.",
    ],
}
ORDERS = {
    1: [("is",)],
    2: [("is", "how")],
    3: [("is", "how", "limit"), ("is", "how", "use"), ("is", "how", "hint")],
    4: [("is", "how", "use", "limit"), ("is", "how", "hint", "limit")],
    5: [("is", "how", "hint", "use", "limit")],
}
AUDIENCES = ["", "", "", " to a beginner", " to a child", " to a student", " to a colleague"]
OPENERS = {
    " to a beginner": ["Let us start simply.", "Here is the idea."],
    " to a child": ["Imagine this.", "Listen."],
    " to a student": ["Remember this for the exam."],
    " to a colleague": ["In short.", "Briefly."],
}


def _explain(rng: random.Random) -> Exchange:
    topic = rng.choice(TOPICS)
    count = rng.choice([1, 2, 2, 3, 3, 3, 4, 4, 5])
    audience = rng.choice(AUDIENCES)
    parts = [rng.choice(SAY[part])(topic) for part in rng.choice(ORDERS[count])]
    if audience:
        parts.insert(0, rng.choice(OPENERS[audience]))
        count += 1
    number = rng.choice([str(count), NUMBER_WORDS[count]])
    sentences = "sentence" if count == 1 else "sentences"
    question = rng.choice(
        [
            f"Explain {topic.name}{audience} in {number} {sentences}.",
            f"Explain {topic.name}{audience} in {number} {sentences}.",
            f"In {number} {sentences}, explain {topic.name}{audience}.",
            f"Describe {topic.name}{audience} in {number} {sentences}.",
            f"Please explain {topic.name}{audience}. Use {number} {sentences}.",
            f"Can you explain {topic.name}{audience} in {number} {sentences}?",
        ]
    )
    key = "story explanation" if question == STORY else f"explain {topic.name} {count} {audience}"
    return Exchange(key, ((question, " ".join(parts)),), maybe_system(rng))


def _aspect(rng: random.Random) -> Exchange:
    topic = rng.choice(TOPICS)
    aspect = rng.choice(["how", "limit", "use", "is", "hint"])
    question = {
        "is": [f"What is {topic.name}?", f"What does {topic.name} do?"],
        "how": [f"How does {topic.name} work?", f"Tell me how {topic.name} works."],
        "limit": [f"What is a drawback of {topic.name}?", f"What limits {topic.name}?"],
        "use": [f"What is {topic.name} used for?", f"Where does {topic.name} matter?"],
        "hint": [f"Give an example for {topic.name}.", f"Tell me a fact about {topic.name}."],
    }[aspect]
    said = rng.choice(question)
    more = rng.choice([None, None, "use", "hint", "limit"])
    answer = rng.choice(SAY[aspect])(topic)
    if more and more != aspect:
        said += {"use": " Add a use.", "hint": " Add an example.", "limit": " Add a drawback."}[
            more
        ]
        answer += " " + rng.choice(SAY[more])(topic)
    return Exchange(f"aspect {topic.name} {aspect} {more}", ((said, answer),), maybe_system(rng))


def _compare(rng: random.Random) -> Exchange:
    one, other = rng.sample(TOPICS, 2)
    if one.kind != other.kind and rng.random() < 0.8:
        same = [t for t in TOPICS if t.kind == one.kind and t is not one]
        other = rng.choice(same) if same else other
    question = rng.choice(
        [
            f"Compare {one.name} with {other.name}.",
            f"What is the difference between {one.name} and {other.name}?",
            f"Explain how {one.name} differs from {other.name}.",
        ]
    )
    answer = f"{_cap(one.name)} {one.does}, while {other.name} {other.does}."
    if rng.random() < 0.6:
        answer += rng.choice(
            [
                f" The first is useful for {one.use}, the second for {other.use}.",
                f" With the first, {one.limit}; with the second, {other.limit}.",
            ]
        )
    pair = " / ".join(sorted([one.name, other.name]))
    return Exchange(f"compare {pair}", ((question, answer),), maybe_system(rng))


def ask(rng: random.Random) -> Exchange:
    if rng.random() < 0.002:
        topic = TOPICS[0]
        parts = [SAY[p][0](topic) for p in ("is", "how", "limit")]
        return Exchange("story explanation", ((STORY, " ".join(parts)),))
    return rng.choices([_explain, _aspect, _compare], [6, 2, 2])[0](rng)
