"""The family `short answer`: one value or one short sentence."""

# ruff: noqa: SIM905 (word lists read better as one string)
from __future__ import annotations

import random

from .exchange import Exchange, maybe_system

STORY = "What is 2+2? Answer with just the number."

CAPITALS = dict(
    pair.split(":")
    for pair in (
        "France:Paris,Germany:Berlin,Italy:Rome,Spain:Madrid,Portugal:Lisbon,Austria:Vienna,"
        "Poland:Warsaw,Greece:Athens,Sweden:Stockholm,Norway:Oslo,Finland:Helsinki,Denmark:Copenhagen,"
        "Ireland:Dublin,Hungary:Budapest,Japan:Tokyo,China:Beijing,India:New Delhi,Egypt:Cairo,"
        "Kenya:Nairobi,Peru:Lima,Chile:Santiago,Cuba:Havana,Canada:Ottawa,Mexico:Mexico City,"
        "Brazil:Brasilia,Russia:Moscow,Turkey:Ankara,Iran:Tehran,Iraq:Baghdad,Thailand:Bangkok,"
        "Vietnam:Hanoi,Nepal:Kathmandu,Belgium:Brussels,Romania:Bucharest,Bulgaria:Sofia,"
        "Morocco:Rabat,Ghana:Accra,Iceland:Reykjavik,Croatia:Zagreb,Serbia:Belgrade"
    ).split(",")
)
OPPOSITES = dict(
    pair.split(":")
    for pair in (
        "hot:cold,big:small,fast:slow,high:low,old:young,early:late,open:closed,full:empty,"
        "hard:soft,light:dark,rich:poor,happy:sad,long:short,wet:dry,clean:dirty,strong:weak,"
        "near:far,loud:quiet,deep:shallow,wide:narrow,first:last,up:down,left:right,true:false,"
        "begin:end,buy:sell,push:pull,win:lose,give:take,ask:answer"
    ).split(",")
)
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()
UNITS = [("minutes", "hour", 60), ("seconds", "minute", 60), ("hours", "day", 24),
         ("days", "week", 7), ("months", "year", 12), ("metres", "kilometre", 1000),
         ("grams", "kilogram", 1000), ("centimetres", "metre", 100),
         ("cents", "euro", 100)]  # fmt: skip
WORDS = ("apple river stone cloud table green music paper house light bread water sugar tiger "
         "lemon mouse chair plant ocean train window garden bottle pencil summer winter market "
         "bridge doctor silver").split()  # fmt: skip
JUST = ["Answer with just the number.", "Only the number.", "Answer with just the number."]


def _sum(rng: random.Random) -> Exchange:
    op = rng.choice(["+", "+", "-", "*"])
    if op == "*":
        a, b = rng.randint(2, 10), rng.randint(2, 10)
        result = a * b
    elif op == "+":
        top = rng.choice([10, 20, 50])
        a, b = rng.randint(0, top), rng.randint(0, top)
        result = a + b
    else:
        a = rng.randint(1, rng.choice([10, 20, 50]))
        b = rng.randint(0, a)
        result = a - b
    word = {"+": "plus", "-": "minus", "*": "times"}[op]
    said = rng.choice([f"{a}{op}{b}", f"{a} {op} {b}", f"{a} {word} {b}"])
    form = rng.random()
    if form < 0.35:
        question, answer = f"What is {said}? {rng.choice(JUST)}", str(result)
    elif form < 0.7:
        question, answer = f"What is {said}?", f"{a} {word} {b} is {result}."
    elif form < 0.85:
        question = f"Compute {said} and show the equation."
        answer = f"{a} {op} {b} = {result}"
    else:
        thing = rng.choice(["apples", "books", "coins", "cards", "eggs", "pens", "stamps", "balls"])
        name = rng.choice(["Ana", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana"])
        op = "+" if op == "*" else op
        result = a + b if op == "+" else a - b
        question = f"{name} has {a} {thing} and " + (
            f"gets {b} more. How many {thing} does {name} have now?"
            if op == "+"
            else f"gives away {b}. How many {thing} are left?"
        )
        tail = "has" if op == "+" else "still has"
        answer = f"{name} {tail} {result} {thing}, because {a} {op} {b} = {result}."
    key = "story short answer" if question == STORY else f"sum {a} {op} {b}"
    return Exchange(key, ((question, answer),), maybe_system(rng))


def _fact(rng: random.Random) -> Exchange:
    country = rng.choice(sorted(CAPITALS))
    city = CAPITALS[country]
    forms = [
        (f"What is the capital of {country}?", f"The capital of {country} is {city}."),
        (f"What is the capital of {country}? Answer with one word.", city),
        (f"Which country has the capital {city}?", f"{city} is the capital of {country}."),
        (f"Is {city} the capital of {country}?", f"Yes, {city} is the capital of {country}."),
        (f"Name the capital of {country} in a sentence.", f"{country} has the capital {city}."),
    ]
    form = rng.randrange(len(forms))
    if form == 3 and rng.random() < 0.5:
        wrong = rng.choice([c for c in sorted(CAPITALS.values()) if c != city])
        pair = (f"Is {wrong} the capital of {country}?", f"No, the capital of {country} is {city}.")
        return Exchange(f"known capital {country}", (pair,), maybe_system(rng))
    return Exchange(f"known capital {country}", (forms[form],), maybe_system(rng))


def _words(rng: random.Random) -> Exchange:
    kind = rng.choice(["opposite", "letters", "first", "plural", "upper", "after", "spell"])
    word = rng.choice(WORDS)
    if kind == "opposite":
        word = rng.choice(sorted(OPPOSITES))
        pair = rng.choice(
            [
                (
                    f"What is the opposite of {word}?",
                    f"The opposite of {word} is {OPPOSITES[word]}.",
                ),
                (f"Give the opposite of {word}. One word.", OPPOSITES[word]),
            ]
        )
    elif kind == "letters":
        pair = (
            f"How many letters has the word {word}?",
            f"The word {word} has {len(word)} letters.",
        )
    elif kind == "first":
        pair = (f"What is the first letter of {word}?", f"The first letter of {word} is {word[0]}.")
    elif kind == "plural":
        ending = "es" if word.endswith("h") else "s"
        pair = (f"What is the plural of {word}?", f"The plural of {word} is {word}{ending}.")
    elif kind == "upper":
        pair = (f"Write {word} in upper case.", word.upper())
    elif kind == "spell":
        pair = (f"Spell the word {word}.", "-".join(word.upper()))
    else:
        names = rng.choice([DAYS, MONTHS])
        i = rng.randrange(len(names))
        step = rng.choice([1, -1])
        which = "after" if step == 1 else "before"
        word = f"{which} {names[i]}"
        thing = "day" if names is DAYS else "month"
        found = names[(i + step) % len(names)]
        pair = (f"Which {thing} comes {word}?", f"{found} comes {word}.")
    return Exchange(f"known word {kind} {word}", (pair,), maybe_system(rng))


def _numbers(rng: random.Random) -> Exchange:
    kind = rng.choice(["larger", "sort", "even", "next", "units", "largest", "count"])
    if kind == "larger":
        a, b = rng.sample(range(1, 200), 2)
        big, small = max(a, b), min(a, b)
        pair = (f"Which is larger, {a} or {b}?", f"{big} is larger than {small}.")
        key = f"larger {small} {big}"
    elif kind == "sort":
        values = rng.sample(range(1, 100), rng.choice([3, 4, 5]))
        key = f"sort {sorted(values)[:2]}"
        said, found = (", ".join(map(str, v)) for v in (values, sorted(values)))
        pair = (f"Sort these numbers: {said}.", found)
    elif kind == "even":
        n = rng.randint(1, 300)
        verdict = ("Yes", "is") if n % 2 == 0 else ("No", "is not")
        pair = (f"Is {n} an even number?", f"{verdict[0]}, {n} {verdict[1]} an even number.")
        key = f"even {n}"
    elif kind == "next":
        start, step = rng.randint(1, 40), rng.randint(1, 10)
        row = [start + step * i for i in range(6)]
        said = ", ".join(map(str, row[:4]))
        pair = (
            f"Continue the row with two numbers: {said}.",
            f"The row goes on with {row[4]} and {row[5]}, because each step adds {step}.",
        )
        key = f"next {start} {step}"
    elif kind == "units":
        small, large, factor = rng.choice(UNITS)
        n = rng.randint(1, 10)
        many = large if n == 1 else large + "s"
        verb = "is" if n == 1 else "are"
        pair = (f"How many {small} {verb} {n} {many}?", f"{n} {many} {verb} {n * factor} {small}.")
        key = f"units {small} {n}"
    elif kind == "largest":
        values = rng.sample(range(1, 150), rng.choice([3, 4, 5]))
        said = ", ".join(map(str, values))
        want, found = rng.choice([("largest", max(values)), ("smallest", min(values))])
        pair = (f"What is the {want} of {said}?", f"The {want} number is {found}.")
        key = f"{want} {sorted(values)[:2]}"
    else:
        start, length = rng.randint(1, 60), rng.randint(4, 10)
        said = ", ".join(str(start + i) for i in range(length))
        pair = (f"Count from {start} to {start + length - 1}.", said)
        key = f"count {start} {length}"
    return Exchange(key, (pair,), maybe_system(rng))


def ask(rng: random.Random) -> Exchange:
    if rng.random() < 0.002:
        return Exchange("story short answer", ((STORY, "4"),))
    return rng.choices([_sum, _fact, _words, _numbers], [6, 2, 2, 5])[0](rng)
