"""The family `code`: write a small Python function or class."""

from __future__ import annotations

import random
from itertools import pairwise
from textwrap import dedent

from .exchange import Exchange, maybe_system

STORY = "Write a Python function fibonacci(n) using iteration. Return only code."

# (phrase, condition on x, name part); K and L are drawn numbers, S a drawn letter.
NUMBER_TESTS = [
    ("even", "x % 2 == 0", "even"), ("odd", "x % 2 == 1", "odd"), ("positive", "x > 0", "positive"),
    ("negative", "x < 0", "negative"), ("non-zero", "x != 0", "non_zero"),
    ("divisible by K", "x % K == 0", "divisible"), ("greater than K", "x > K", "large"),
    ("less than K", "x < K", "small"), ("at least K", "x >= K", "at_least"),
    ("at most K", "x <= K", "at_most"), ("not equal to K", "x != K", "other"),
    ("between K and L", "K <= x <= L", "between"), ("", "", "all"),
]  # fmt: skip
NUMBER_MAPS = [
    ("squares", "x * x", "squares"), ("cubes", "x ** 3", "cubes"), ("doubles", "2 * x", "doubles"),
    ("halves", "x / 2", "halves"), ("negatives", "-x", "negatives"),
    ("absolute values", "abs(x)", "absolutes"), ("values plus J", "x + J", "shifted"),
    ("values times J", "x * J", "scaled"), ("values minus J", "x - J", "lowered"),
    ("last digits", "x % 10", "last_digits"), ("values", "x", "values"),
]  # fmt: skip
TEXT_TESTS = [
    ("longer than K characters", "len(x) > K", "long"),
    ("shorter than K characters", "len(x) < K", "short"),
    ("that start with 'S'", "x.startswith('S')", "starting"),
    ("that end with 'S'", "x.endswith('S')", "ending"),
    ("that contain 'S'", "'S' in x", "containing"), ("in upper case", "x.isupper()", "upper"),
    ("in lower case", "x.islower()", "lower"), ("made of digits", "x.isdigit()", "numeric"),
    ("made of letters", "x.isalpha()", "alphabetic"), ("that are not empty", "x", "non_empty"),
    ("", "", "all"),
]  # fmt: skip
TEXT_MAPS = [
    ("upper-case forms", "x.upper()", "uppers"), ("lower-case forms", "x.lower()", "lowers"),
    ("reversed forms", "x[::-1]", "reversals"), ("first letters", "x[0]", "initials"),
    ("lengths", "len(x)", "lengths"), ("stripped forms", "x.strip()", "stripped"),
    ("titles", "x.title()", "titles"), ("values", "x", "values"),
]  # fmt: skip
NUMBER_ENDS = ["list", "sum", "count", "maximum", "minimum", "product", "average"]
TEXT_ENDS = ["list", "count", "set", "joined text"]
NUMBER_LISTS = ["numbers", "values", "items", "data", "scores", "prices", "amounts", "xs"]
TEXT_LISTS = ["words", "names", "lines", "texts", "strings", "tokens", "labels"]
ENDINGS = ["Return only code.", "Return only code.", "Answer with code only.", "Only the code.", ""]

# name, arguments, purpose, one-line result; the dressing (hints, docstring) varies.
FORMULAS = [
    ("circle_area", "radius", "the area of a circle", "3.14159 * radius * radius"),
    ("rectangle_area", "width, height", "the area of a rectangle", "width * height"),
    ("triangle_area", "base, height", "the area of a triangle", "base * height / 2"),
    ("rectangle_perimeter", "width, height", "the perimeter of a rectangle",
     "2 * (width + height)"),
    ("cube_volume", "side", "the volume of a cube", "side ** 3"),
    ("box_volume", "width, height, depth", "the volume of a box", "width * height * depth"),
    ("to_fahrenheit", "celsius", "the temperature in Fahrenheit", "celsius * 9 / 5 + 32"),
    ("to_celsius", "fahrenheit", "the temperature in Celsius", "(fahrenheit - 32) * 5 / 9"),
    ("average", "a, b", "the average of two numbers", "(a + b) / 2"),
    ("distance", "speed, time", "the distance travelled", "speed * time"),
    ("speed", "distance, time", "the speed of a trip", "distance / time"),
    ("simple_interest", "principal, rate, years", "the simple interest",
     "principal * rate * years"),
    ("total_price", "price, quantity", "the total price of an order", "price * quantity"),
    ("discounted", "price, percent", "the price after a discount", "price * (100 - percent) / 100"),
    ("with_tax", "price, rate", "the price with tax added", "price * (1 + rate)"),
    ("minutes_to_seconds", "minutes", "the number of seconds", "minutes * 60"),
    ("hours_to_minutes", "hours", "the number of minutes", "hours * 60"),
    ("days_to_hours", "days", "the number of hours", "days * 24"),
    ("km_to_miles", "km", "the distance in miles", "km * 0.621371"),
    ("miles_to_km", "miles", "the distance in kilometres", "miles * 1.60934"),
    ("is_even", "n", "True if the number is even", "n % 2 == 0"),
    ("is_odd", "n", "True if the number is odd", "n % 2 == 1"),
    ("is_leap_year", "year", "True if the year is a leap year",
     "year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)"),
    ("last_item", "items", "the last item of a list", "items[-1]"),
    ("first_item", "items", "the first item of a list", "items[0]"),
    ("reverse_text", "text", "the text in reverse order", "text[::-1]"),
    ("is_palindrome", "text", "True if the text reads the same backwards", "text == text[::-1]"),
    ("word_count", "text", "the number of words in a text", "len(text.split())"),
    ("unique", "items", "the sorted unique items", "sorted(set(items))"),
    ("second_largest", "numbers", "the second largest number", "sorted(set(numbers))[-2]"),
    ("spread", "numbers", "the difference of maximum and minimum", "max(numbers) - min(numbers)"),
    ("initials", "name", "the initials of a name", "''.join(p[0] for p in name.split())"),
    ("merge", "first, second", "one dictionary made of two", "{**first, **second}"),
    ("swap", "pair", "the pair with its parts exchanged", "(pair[1], pair[0])"),
    ("clamp", "x, low, high", "the value limited to a range", "max(low, min(x, high))"),
    ("sign", "x", "-1, 0 or 1 for the sign", "(x > 0) - (x < 0)"),
    ("hypotenuse", "a, b", "the length of the hypotenuse", "(a * a + b * b) ** 0.5"),
    ("digit_count", "n", "the number of digits", "len(str(abs(n)))"),
    ("digit_sum", "n", "the sum of the digits", "sum(int(d) for d in str(n))"),
    ("flatten", "rows", "one flat list", "[x for row in rows for x in row]"),
    ("transpose", "rows", "the transposed table", "[list(r) for r in zip(*rows)]"),
    ("invert", "table", "a dictionary from value to key", "{v: k for k, v in table.items()}"),
]  # fmt: skip

# (name, argument, purpose, {style: body}); F stands for the function's name.
CLASSICS = [
    ("fibonacci", "n", "the n-th Fibonacci number", {
        "iteration": "a, b = 0, 1\nfor _ in range(n):\n    a, b = b, a + b\nreturn a",
        "recursion": "if n < 2:\n    return n\nreturn F(n - 1) + F(n - 2)",
        "a while loop": "a, b = 0, 1\nwhile n > 0:\n    a, b = b, a + b\n    n -= 1\nreturn a"}),
    ("factorial", "n", "the factorial of n", {
        "iteration": "result = 1\nfor i in range(2, n + 1):\n    result *= i\nreturn result",
        "recursion": "if n < 2:\n    return 1\nreturn n * F(n - 1)",
        "a while loop": "result = 1\nwhile n > 1:\n    result *= n\n    n -= 1\nreturn result"}),
    ("sum_to", "n", "the sum of the numbers from 1 to n", {
        "iteration": "total = 0\nfor i in range(1, n + 1):\n    total += i\nreturn total",
        "recursion": "if n == 0:\n    return 0\nreturn n + F(n - 1)",
        "a while loop": "total = 0\nwhile n > 0:\n    total += n\n    n -= 1\nreturn total"}),
    ("power", "base, n", "base raised to the power n", {
        "iteration": "result = 1\nfor _ in range(n):\n    result *= base\nreturn result",
        "recursion": "if n == 0:\n    return 1\nreturn base * F(base, n - 1)",
        "a while loop": "result = 1\nwhile n > 0:\n    result *= base\n    n -= 1\nreturn result"}),
    ("gcd", "a, b", "the greatest common divisor of a and b", {
        "a while loop": "while b:\n    a, b = b, a % b\nreturn a",
        "recursion": "if b == 0:\n    return a\nreturn F(b, a % b)"}),
    ("is_prime", "n", "True if n is a prime number", {
        "iteration": "if n < 2:\n    return False\nfor i in range(2, int(n ** 0.5) + 1):\n"
                     "    if n % i == 0:\n        return False\nreturn True",
        "a while loop": "if n < 2:\n    return False\ni = 2\nwhile i * i <= n:\n"
                        "    if n % i == 0:\n        return False\n    i += 1\nreturn True"}),
    ("count_digits", "n", "the number of digits of n", {
        "a while loop": "count = 1\nwhile n >= 10:\n    n //= 10\n    count += 1\nreturn count",
        "recursion": "if n < 10:\n    return 1\nreturn 1 + F(n // 10)"}),
    ("sum_digits", "n", "the sum of the digits of n", {
        "a while loop": "total = 0\nwhile n > 0:\n    total += n % 10\n    n //= 10\nreturn total",
        "recursion": "if n < 10:\n    return n\nreturn n % 10 + F(n // 10)"}),
    ("reverse_list", "items", "the list in reverse order", {
        "iteration": "result = []\nfor item in items:\n    result.insert(0, item)\nreturn result",
        "recursion": "if not items:\n    return []\nreturn F(items[1:]) + [items[0]]"}),
    ("count_vowels", "text", "the number of vowels in the text", {
        "iteration": "count = 0\nfor letter in text.lower():\n    if letter in 'aeiou':\n"
                     "        count += 1\nreturn count",
        "recursion": "if not text:\n    return 0\nreturn (text[0] in 'aeiou') + F(text[1:])"}),
    ("find_max", "numbers", "the largest number", {
        "iteration": "best = numbers[0]\nfor n in numbers:\n    if n > best:\n        best = n\n"
                     "return best",
        "recursion": "if len(numbers) == 1:\n    return numbers[0]\n"
                     "return max(numbers[0], F(numbers[1:]))"}),
    ("find_min", "numbers", "the smallest number", {
        "iteration": "best = numbers[0]\nfor n in numbers:\n    if n < best:\n        best = n\n"
                     "return best",
        "recursion": "if len(numbers) == 1:\n    return numbers[0]\n"
                     "return min(numbers[0], F(numbers[1:]))"}),
    ("binary_search", "items, target", "the index of target in a sorted list, or -1", {
        "a while loop": "low, high = 0, len(items) - 1\nwhile low <= high:\n"
                        "    mid = (low + high) // 2\n    if items[mid] == target:\n"
                        "        return mid\n    if items[mid] < target:\n        low = mid + 1\n"
                        "    else:\n        high = mid - 1\nreturn -1"}),
    ("linear_search", "items, target", "the index of target, or -1", {
        "iteration": "for i, item in enumerate(items):\n    if item == target:\n        return i\n"
                     "return -1",
        "a while loop": "i = 0\nwhile i < len(items):\n    if items[i] == target:\n"
                        "        return i\n    i += 1\nreturn -1"}),
    ("bubble_sort", "items", "the sorted list", {
        "iteration": "n = len(items)\nfor i in range(n):\n    for j in range(n - i - 1):\n"
                     "        if items[j] > items[j + 1]:\n"
                     "            items[j], items[j + 1] = items[j + 1], items[j]\nreturn items"}),
    ("selection_sort", "items", "the sorted list", {
        "iteration": "n = len(items)\nfor i in range(n):\n    low = i\n"
                     "    for j in range(i + 1, n):\n        if items[j] < items[low]:\n"
                     "            low = j\n    items[i], items[low] = items[low], items[i]\n"
                     "return items"}),
    ("insertion_sort", "items", "the sorted list", {
        "iteration": "for i in range(1, len(items)):\n    item = items[i]\n    j = i - 1\n"
                     "    while j >= 0 and items[j] > item:\n        items[j + 1] = items[j]\n"
                     "        j -= 1\n    items[j + 1] = item\nreturn items"}),
    ("quicksort", "items", "the sorted list", {
        "recursion": "if len(items) < 2:\n    return items\npivot = items[0]\n"
                     "small = [x for x in items[1:] if x < pivot]\n"
                     "large = [x for x in items[1:] if x >= pivot]\n"
                     "return F(small) + [pivot] + F(large)"}),
    ("merge_sort", "items", "the sorted list", {
        "recursion": "if len(items) < 2:\n    return items\nmid = len(items) // 2\n"
                     "left, right = F(items[:mid]), F(items[mid:])\nresult = []\n"
                     "while left and right:\n    if left[0] <= right[0]:\n"
                     "        result.append(left.pop(0))\n    else:\n"
                     "        result.append(right.pop(0))\nreturn result + left + right"}),
    ("count_items", "items", "a dictionary of counts", {
        "iteration": "counts = {}\nfor item in items:\n    counts[item] = counts.get(item, 0) + 1\n"
                     "return counts"}),
    ("remove_duplicates", "items", "the items without duplicates, in order", {
        "iteration": "seen = set()\nresult = []\nfor item in items:\n    if item not in seen:\n"
                     "        seen.add(item)\n        result.append(item)\nreturn result"}),
    ("collatz", "n", "the number of Collatz steps to reach 1", {
        "a while loop": "steps = 0\nwhile n != 1:\n    if n % 2 == 0:\n        n //= 2\n"
                        "    else:\n        n = 3 * n + 1\n    steps += 1\nreturn steps"}),
    ("to_binary", "n", "the binary digits of n as text", {
        "a while loop": "digits = ''\nwhile n > 0:\n    digits = str(n % 2) + digits\n"
                        "    n //= 2\nreturn digits or '0'",
        "recursion": "if n < 2:\n    return str(n)\nreturn F(n // 2) + str(n % 2)"}),
    ("dot_product", "a, b", "the dot product of two lists", {
        "iteration": "total = 0\nfor x, y in zip(a, b):\n    total += x * y\nreturn total"}),
    ("chunks", "items, size", "the list cut into parts of a given size", {
        "iteration": "result = []\nfor i in range(0, len(items), size):\n"
                     "    result.append(items[i:i + size])\nreturn result"}),
    ("primes_up_to", "n", "the list of primes up to n", {
        "iteration": "primes = []\nfor i in range(2, n + 1):\n"
                     "    if all(i % p for p in primes):\n        primes.append(i)\n"
                     "return primes"}),
]  # fmt: skip

NOUNS = ["Point", "Person", "Book", "Car", "Account", "Order", "Song", "City", "Student", "Circle",
         "Product", "Movie", "Player", "Room", "Ticket", "Animal", "Recipe", "Task", "Lamp",
         "Message", "Event", "Bottle", "Garden", "Robot", "Planet"]  # fmt: skip
FIELDS = ["name", "age", "title", "price", "size", "colour", "owner", "year", "weight", "height",
          "width", "author", "score", "level", "country", "email", "balance", "speed", "status",
          "length", "code", "text", "date", "count", "x", "y"]  # fmt: skip


def _dressed(
    rng: random.Random, name: str, arguments: str, purpose: str, body: str
) -> tuple[str, str, str]:
    """The definition, what the question must say to ask for it, and the name of the dressing."""
    style = rng.random()
    lines = dedent(body).splitlines()
    ask, dress = "", "plain"
    if style < 0.2:
        lines.insert(0, f'"""Return {purpose}."""')
        ask, dress = rng.choice([" Include a docstring.", " Add a docstring."]), "docstring"
    code = f"def {name}({arguments}):\n" + "\n".join("    " + line for line in lines)
    return code, ask, dress


def _pipeline(rng: random.Random) -> Exchange:
    numeric = rng.random() < 0.6
    tests, maps, ends, lists = (
        (NUMBER_TESTS, NUMBER_MAPS, NUMBER_ENDS, NUMBER_LISTS)
        if numeric
        else (TEXT_TESTS, TEXT_MAPS, TEXT_ENDS, TEXT_LISTS)
    )
    test, change, end = rng.choice(tests), rng.choice(maps), rng.choice(ends)
    if end in ("set", "joined text") and change[2] == "lengths":
        end = "list"
    k = rng.choice([2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 50, 100])
    draws = {
        "K": str(k), "L": str(k + rng.choice([5, 10, 20, 50])),
        "J": str(rng.randint(1, 12)), "S": rng.choice("abcdefghklmnprstw"),
    }  # fmt: skip
    items = rng.choice(lists)
    x = rng.choice([items[0] if items != "xs" else "x", "x", "item" if items == "items" else "v"])

    def fill(text: str) -> str:
        return "".join(draws.get(c, c) for c in text)

    def on(expression: str) -> str:
        # x is the only lower-case name of that length in the tables
        out, previous = "", ""
        padded = expression + " "
        for here, after in pairwise(padded):
            alone = here == "x" and not previous.isalpha() and not after.isalpha()
            out += x if alone else here
            previous = here
        return fill(out)

    condition, value = on(test[1]), on(change[1])
    end_name = {"joined text": "joined"}.get(end, end)
    base = f"{end_name}_{change[2]}" if test[2] == "all" else f"{end_name}_{change[2]}_{test[2]}"
    name = rng.choice([base, base, base, "solve", "compute", "process", "collect"])
    plain = change[2] == "values"
    adjective = test[0] and not test[0].startswith(("that", "longer", "shorter", "in", "made"))
    short = test[0] in ("even", "odd", "positive", "negative", "non-zero")
    where = (
        f"{fill(test[0])} {items}" if short
        else f"{items} {fill(test[0])}" if test[0] and not adjective
        else f"{items} that are {fill(test[0])}" if test[0]
        else items
    )  # fmt: skip
    what = where if plain else f"{fill(change[0])} of the {where}"
    loop = rng.random() < 0.5
    clause = f" if {condition}" if condition else ""
    start = {
        "list": f"[{value} for {x} in {items}{clause}]",
        "sum": f"sum({value} for {x} in {items}{clause})",
        "count": f"sum(1 for {x} in {items}{clause})",
        "maximum": f"max({value} for {x} in {items}{clause})",
        "minimum": f"min({value} for {x} in {items}{clause})",
        "set": "{" + f"{value} for {x} in {items}{clause}" + "}",
        "joined text": f"' '.join({value} for {x} in {items}{clause})",
    }
    if loop or end not in start:
        grow = {
            "list": ("result = []", f"result.append({value})", "return result"),
            "set": ("result = set()", f"result.add({value})", "return result"),
            "joined text": ("parts = []", f"parts.append({value})", "return ' '.join(parts)"),
            "sum": ("total = 0", f"total += {value}", "return total"),
            "product": ("result = 1", f"result *= {value}", "return result"),
            "count": ("count = 0", "count += 1", "return count"),
            "maximum": ("best = None", f"best = {value} if best is None else max(best, {value})",
                        "return best"),
            "minimum": ("best = None", f"best = {value} if best is None else min(best, {value})",
                        "return best"),
            "average": ("kept = []", f"kept.append({value})", "return sum(kept) / len(kept)"),
        }[end]  # fmt: skip
        body = [grow[0], f"for {x} in {items}:"]
        body += [f"    if {condition}:", "        " + grow[1]] if condition else ["    " + grow[1]]
        body.append(grow[2])
        how = rng.choice([" Use a loop.", " Use a for loop."])
    else:
        body = [f"return {start[end]}"]
        how = rng.choice([" Use a comprehension.", " Use one expression.", " Keep it short."])
    code, ask, _ = _dressed(rng, name, items, f"the {end} of the {what}", "\n".join(body))
    opening = rng.choice(
        ["Write a Python function", "Write a function", "Define a Python function"]
    )
    question = f"{opening} {name}({items}) that returns the {end} of the {what}.{how}{ask}"
    question = f"{question} {rng.choice(ENDINGS)}".strip()
    key = f"code pipeline {test[2]} {change[2]} {end}"
    return Exchange(key, ((question, code),), maybe_system(rng))


def _formula(rng: random.Random) -> Exchange:
    name, arguments, purpose, value = rng.choice(FORMULAS)
    if rng.random() < 0.3:
        body = f"result = {value}\nreturn result"
        extra = " Store the result in a variable first."
        form = "stored"
    else:
        body, extra, form = f"return {value}", "", "direct"
    code, ask, dress = _dressed(rng, name, arguments, purpose, body)
    opening = rng.choice(
        ["Write a Python function", "Write a function", "Define a Python function"]
    )
    question = f"{opening} {name}({arguments}) that returns {purpose}.{extra}{ask}"
    ending = rng.choice(ENDINGS)
    key = f"code formula {name} {form} {dress}"
    return Exchange(key, ((f"{question} {ending}".strip(), code),), maybe_system(rng))


def _classic(rng: random.Random) -> Exchange:
    name, arguments, purpose, styles = rng.choice(CLASSICS)
    style = rng.choice(sorted(styles))
    called = rng.choice([name, name, name, "solve", f"my_{name}", f"{name}_of"])
    code, ask, dress = _dressed(
        rng, called, arguments, purpose, styles[style].replace("F(", f"{called}(")
    )
    short = rng.random() < 0.4 and called == name
    opening = rng.choice(
        ["Write a Python function", "Write a function", "Define a Python function"]
    )
    question = (
        f"{opening} {called}({arguments}) using {style}.{ask}" if short
        else f"{opening} {called}({arguments}) that returns {purpose}, using {style}.{ask}"
    )  # fmt: skip
    ending = rng.choice(ENDINGS)
    question = f"{question} {ending}".strip()
    key = f"code classic {name} {style} {called} {dress}"
    if question == STORY:
        key = "story code"
    return Exchange(key, ((question, code),), maybe_system(rng))


def _class(rng: random.Random) -> Exchange:
    noun = rng.choice(NOUNS)
    fields = rng.sample(FIELDS, rng.choice([2, 2, 3, 3, 4]))
    listed = ", ".join(fields[:-1]) + " and " + fields[-1]
    lines = [f"class {noun}:", f"    def __init__(self, {', '.join(fields)}):"]
    lines += [f"        self.{f} = {f}" for f in fields]
    extra = ""
    kind = rng.choice(["plain", "repr", "getter", "dataclass"])
    if kind == "repr":
        shown = ", ".join("{self." + f + "}" for f in fields)
        lines += ["", "    def __repr__(self):", f"        return f'{noun}({shown})'"]
        extra = " and a __repr__ method"
    elif kind == "getter":
        chosen = rng.choice(fields)
        lines += ["", f"    def get_{chosen}(self):", f"        return self.{chosen}"]
        extra = f" and a method get_{chosen}"
    elif kind == "dataclass":
        lines = ["from dataclasses import dataclass", "", "", "@dataclass", f"class {noun}:"]
        lines += [f"    {f}: str" for f in fields]
    what = "dataclass" if kind == "dataclass" else "class"
    opening = rng.choice([f"Write a Python {what}", f"Define a Python {what}", f"Write a {what}"])
    question = f"{opening} {noun} with the fields {listed}{extra}. {rng.choice(ENDINGS)}".strip()
    key = f"code class {noun} {fields[0]} {kind}"
    return Exchange(key, ((question, "\n".join(lines)),), maybe_system(rng))


def ask(rng: random.Random) -> Exchange:
    if rng.random() < 0.002:
        body = CLASSICS[0][3]["iteration"]
        code = "def fibonacci(n):\n" + "\n".join("    " + line for line in body.splitlines())
        return Exchange("story code", ((STORY, code),))
    kind = rng.choices([_pipeline, _formula, _classic, _class], [5, 2, 3, 2])[0]
    return kind(rng)
