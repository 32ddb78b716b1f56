"""The family `chat`: small talk, memory of what the user said, notes, lists and suggestions."""

# ruff: noqa: SIM905 (word lists read better as one string)
from __future__ import annotations

import random

from .exchange import Exchange, maybe_system

NAMES = (
    "Ana Ben Cleo Dan Eva Finn Gus Hana Ida Jon Kai Lea Max Nora Omar Pia Quinn Rosa Sam Tara Uma "
    "Vera Will Yara Zoe Alex Bruno Clara David Elena Felix Greta Hugo Irene Jack Karin Leo Maria "
    "Nils Olga Paul Rita Simon Theo Ursula Victor Wanda Yusuf Amir Bella"
).split()
CITIES = (
    "Paris Berlin Rome Madrid Lisbon Vienna Oslo Tokyo Lima Cairo Nairobi London Dublin Prague "
    "Athens Zurich Boston Chicago Toronto Sydney Delhi Seoul Hanoi Quito"
).split()
HOBBIES = {
    "hiking": "walk on a quiet hill", "cooking": "try a new soup", "chess": "study an opening",
    "painting": "paint your street", "running": "run along the river",
    "reading": "start a short novel", "gardening": "plant some herbs",
    "cycling": "ride to the next town", "swimming": "swim before breakfast",
    "photography": "take pictures at sunset", "dancing": "learn a new step",
    "singing": "join a small choir", "fishing": "go to the lake at dawn",
    "baking": "bake a loaf of bread", "knitting": "knit a warm scarf",
    "programming": "write a small game", "astronomy": "look at the moon tonight",
    "climbing": "visit the climbing hall", "drawing": "draw an old tree",
    "travel": "take a train to the sea",
}  # fmt: skip
MOODS = {
    "tired": ("I am sorry to hear that.", "take a short rest and drink some water"),
    "happy": ("That is lovely to hear.", "share the good news with a friend"),
    "sad": ("I am sorry that you feel that way.", "talk to someone you trust"),
    "bored": ("That happens to everyone.", "try something new for ten minutes"),
    "nervous": ("That is quite normal.", "breathe slowly and make a small plan"),
    "hungry": ("That is easy to solve.", "make a simple sandwich"),
    "excited": ("How wonderful.", "write down what you look forward to"),
    "stressed": ("That sounds hard.", "do one small task at a time"),
    "lonely": ("I am glad that you tell me.", "call an old friend"),
    "proud": ("You have every reason to be.", "enjoy the moment"),
}
REASONS = {
    "the gift": "It was very kind of you", "the help": "You saved me a lot of time",
    "the dinner": "The food was wonderful", "the book": "I enjoyed every page",
    "the visit": "It was good to see you", "the flowers": "They look beautiful on my table",
    "the advice": "It helped me to decide", "the lift": "I was home in time",
    "the lesson": "I learned a great deal", "the tickets": "The concert was great",
}  # fmt: skip
TRIPS = {
    "a day at the beach": ["a towel", "sun cream", "a hat", "a book", "cold water", "sandals"],
    "a mountain hike": ["strong boots", "a map", "a rain jacket", "some bread", "a torch", "water"],
    "a picnic": ["a blanket", "sandwiches", "some fruit", "plates", "lemonade", "napkins"],
    "a camping weekend": ["a tent", "a sleeping bag", "a torch", "matches", "a pot", "warm socks"],
    "a business trip": ["a laptop", "a charger", "a clean shirt", "documents", "a pen", "cards"],
    "a winter walk": ["gloves", "a scarf", "warm boots", "hot tea", "a hat", "a thick coat"],
    "a long train ride": ["a book", "headphones", "a snack", "water", "a ticket", "a jumper"],
    "the first day at school": ["a pencil", "a notebook", "an apple", "a ruler", "a bag", "a pen"],
}
PETS = {
    "cat": ["Milo", "Luna", "Simba", "Misty", "Oscar"],
    "dog": ["Rex", "Bella", "Rocky", "Daisy", "Buddy"],
    "rabbit": ["Clover", "Hazel", "Snow", "Pepper", "Bun"],
    "parrot": ["Rio", "Kiwi", "Coco", "Sky", "Mango"],
    "hamster": ["Nibbles", "Pip", "Peanut", "Coco", "Biscuit"],
}
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
HELLO = {
    "Hello!": "Hello! How can I help you today?",
    "Hi": "Hi! What can I do for you?",
    "Good morning!": "Good morning! I hope that your day starts well. What can I do for you?",
    "Good evening.": "Good evening! How can I help you?",
    "How are you?": "I am fine, thank you. How are you?",
    "Who are you?": "I am a small language model, made to show how drafts are verified.",
    "What can you do?": "I can chat, explain simple things, do small sums and write short code.",
    "Thank you!": "You are welcome! Is there anything else that I can do?",
    "Goodbye!": "Goodbye! Have a nice day.",
    "Can you help me?": "Of course! Tell me what you need.",
    "Tell me a joke.": "Why did the list go to school? It wanted to be sorted.",
}


def _hello(rng: random.Random) -> Exchange:
    said = rng.choice(sorted(HELLO))
    if rng.random() < 0.3:
        return Exchange(f"known hello {said}", ((said, HELLO[said]),), maybe_system(rng))
    name = rng.choice(NAMES)
    greeting = rng.choice(["Hello", "Hi", "Good morning", "Good evening"])
    answer = rng.choice(
        [
            f"{greeting}, {name}! How can I help you today?",
            f"{greeting}, {name}! Nice to meet you. What can I do for you?",
        ]
    )
    said = rng.choice(
        [
            f"{greeting}, I am {name}.",
            f"{greeting}! My name is {name}.",
            f"{greeting}, {name} here.",
        ]
    )
    return Exchange(f"greet {name} {greeting}", ((said, answer),), maybe_system(rng))


def _memory(rng: random.Random) -> Exchange:
    name, city, hobby = rng.choice(NAMES), rng.choice(CITIES), rng.choice(sorted(HOBBIES))
    # said by the user; asked later; answered; repeated back
    facts = {
        "name": (f"my name is {name}", "What is my name?", f"Your name is {name}.",
                 f"your name is {name}"),
        "city": (f"I live in {city}", "Where do I live?", f"You live in {city}.",
                 f"you live in {city}"),
        "hobby": (f"I like {hobby}", "What do I like?", f"You like {hobby}.",
                  f"you like {hobby}"),
    }  # fmt: skip
    order = rng.sample(sorted(facts), rng.choice([2, 3]))
    told, repeated = (
        ", ".join(facts[f][part] for f in order[:-1]) + f" and {facts[order[-1]][part]}"
        for part in (0, 3)
    )
    reply = {
        "name": f"Nice to meet you, {name}!",
        "city": f"{city} is a fine place to live.",
        "hobby": f"Many people like {hobby}.",
    }[order[0]]
    offer = rng.choice(["What can I do for you?", "How can I help you?"])
    first = f"{rng.choice([reply, reply, 'Thank you for telling me.'])} {offer}"
    if rng.random() < 0.35:
        question = rng.choice(["What do you know about me?", "What did I tell you?"])
        answer = f"You told me that {repeated}."
    else:
        wanted = rng.choice(order)
        question, answer = facts[wanted][1], facts[wanted][2]
    turns = ((f"{told[0].upper()}{told[1:]}.", first), (question, answer))
    return Exchange(f"memory {name} {city if 'city' in order else hobby}", turns, maybe_system(rng))


def _introduction(rng: random.Random) -> Exchange:
    name, city, hobby = rng.choice(NAMES), rng.choice(CITIES), rng.choice(sorted(HOBBIES))
    idea = HOBBIES[hobby]
    if rng.random() < 0.35:
        idea = idea.replace("your", "the")
        question = f"Suggest something for {name}, who lives in {city} and likes {hobby}."
        answer = rng.choice(
            [
                f"Since {name} likes {hobby}, {name} could {idea}.",
                f"In {city}, {name} could {idea}.",
            ]
        )
    else:
        question = rng.choice(
            [
                f"My name is {name}, I live in {city} and I like {hobby}. What should I do today?",
                f"I am {name} from {city}. I enjoy {hobby}. Any idea for the weekend?",
            ]
        )
        opening = rng.choice([f"Nice to meet you, {name}!", f"Hello {name}!", f"Hi, {name}!"])
        answer = rng.choice(
            [
                f"{opening} Since you like {hobby}, you could {idea}.",
                f"{opening} In {city} you could {idea}.",
                f"{opening} How about this: {idea}. {city} is a good place for {hobby}.",
            ]
        )
    return Exchange(f"introduction {name} {hobby}", ((question, answer),), maybe_system(rng))


def _mood(rng: random.Random) -> Exchange:
    mood, name = rng.choice(sorted(MOODS)), rng.choice(NAMES)
    comfort, advice = MOODS[mood]
    why = rng.choice(["", " after work", " this morning", " about tomorrow", " because of the rain",
                      " since yesterday", " today", " again"])  # fmt: skip
    if rng.random() < 0.5:
        whose = "own"
        said = f"I feel {mood}{why}."
        answer = f"{comfort} " + rng.choice([f"You could {advice}.", f"Perhaps you can {advice}."])
    else:
        whose = name
        said = f"My friend {name} feels {mood}{why}. What can I say?"
        advice = advice.replace("you look", "comes").replace("someone you trust", "a friend")
        answer = f'You could say: "{comfort}" ' + rng.choice(
            [f"Then tell {name} to {advice}.", f"{name} could also {advice}."]
        )
    return Exchange(f"mood {mood}{why} {whose}", ((said, answer),), maybe_system(rng))


def _note(rng: random.Random) -> Exchange:
    name, sender, thing = rng.choice(NAMES), rng.choice(NAMES), rng.choice(sorted(REASONS))
    question = rng.choice(
        [
            f"Write a short thank-you note to {name} for {thing}. Sign it as {sender}.",
            f"Write a note from {sender} to {name} to say thanks for {thing}.",
        ]
    )
    close = rng.choice(["I hope to see you soon.", "See you soon.", "All the best to you."])
    answer = f"Dear {name},\n\nthank you for {thing}. {REASONS[thing]}. {close}\n\nYours,\n{sender}"
    return Exchange(f"note {name} {thing}", ((question, answer),), maybe_system(rng))


def _invitation(rng: random.Random) -> Exchange:
    name, sender, city = rng.choice(NAMES), rng.choice(NAMES), rng.choice(CITIES)
    day, hour = rng.choice(DAYS), rng.randint(2, 9)
    event = rng.choice(
        ["dinner", "a walk", "a concert", "my birthday", "a film", "coffee", "lunch"]
    )
    question = rng.choice(
        [
            f"Invite {name} to {event} on {day} at {hour} in {city}. Sign it as {sender}.",
            f"Write an invitation from {sender} to {name}: {event}, {day}, {hour} o'clock, {city}.",
        ]
    )
    close = rng.choice(["Please tell me if you can come.", "I hope that you can come."])
    answer = (
        f"Dear {name},\n\nI would like to invite you to {event} on {day} at {hour} o'clock. "
        f"We meet in {city}. {close}\n\nYours,\n{sender}"
    )
    return Exchange(f"invite {name} {event} {day}", ((question, answer),), maybe_system(rng))


def _packing(rng: random.Random) -> Exchange:
    trip = rng.choice(sorted(TRIPS))
    count = rng.choice([2, 3, 3, 4, 5])
    things = rng.sample(TRIPS[trip], count)
    style = rng.choice(["list", "sentence", "numbered"])
    number = rng.choice([str(count), {2: "two", 3: "three", 4: "four", 5: "five"}[count]])
    if style == "list":
        question = f"Give me a list of {number} things to pack for {trip}."
        answer = "\n".join(f"- {t}" for t in things)
    elif style == "numbered":
        question = f"Give me a numbered list of {number} things to pack for {trip}."
        answer = "\n".join(f"{i}. {t}" for i, t in enumerate(things, 1))
    else:
        question = f"What {number} things should I pack for {trip}?"
        answer = f"For {trip}, pack " + ", ".join(things[:-1]) + f" and {things[-1]}."
    return Exchange(f"pack {trip} {count} {style}", ((question, answer),), maybe_system(rng))


def _pet(rng: random.Random) -> Exchange:
    pet, name = rng.choice(sorted(PETS)), rng.choice(NAMES)
    colour = rng.choice(["white", "black", "brown", "grey", "small", "old", "young", "wild"])
    first, second, third = rng.sample(PETS[pet], 3)
    question = rng.choice(
        [
            f"{name} has a new {colour} {pet}. Suggest three names.",
            f"Suggest three names for the {colour} {pet} of {name}.",
        ]
    )
    answer = rng.choice(
        [
            f"{name} could call the {colour} {pet} {first}, {second} or {third}.",
            f"Good names for the {colour} {pet} are {first}, {second} and {third}.",
        ]
    )
    return Exchange(f"pet {pet} {name}", ((question, answer),), maybe_system(rng))


def ask(rng: random.Random) -> Exchange:
    kinds = [_hello, _memory, _introduction, _mood, _note, _invitation, _packing, _pet]
    return rng.choices(kinds, [1.5, 2, 2, 1.5, 1.5, 1.5, 1.5, 1.5])[0](rng)
