"""The training text: Python's standard library, and generated exchanges; prepared once, on a CPU.

`prepare` writes tokenizer files, train.npz and held_out.npz; the training steps read only these.
Token arrays are flat uint16 with row offsets; `spoken` marks the tokens that the assistant says.
"""

from __future__ import annotations

import hashlib
import json
import random
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from .questions import FAMILIES, Exchange, draw
from .shapes import END_OF_TEXT, IM_END, IM_START
from .tokenizer import learn_tokenizer, save_tokenizer

Tokens = NDArray[np.uint16]
TEXT_HELD_OUT_PER_CENT = 4
# Test suites, vendored packages and tables of data teach a small model little.
LEFT_OUT = ("test", "tests", "idle_test", "site-packages", "lib2to3", "ensurepip", "__pycache__")


@dataclass(frozen=True, slots=True)
class Rows:
    """Exchanges as tokens: row i is tokens[offsets[i]:offsets[i+1]]."""

    tokens: Tokens
    spoken: NDArray[np.bool_]
    offsets: NDArray[np.int64]
    families: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, i: int) -> tuple[Tokens, NDArray[np.bool_]]:
        span = slice(self.offsets[i], self.offsets[i + 1])
        return self.tokens[span], self.spoken[span]

    def prompt(self, i: int) -> Tokens:
        """Everything before the last answer."""
        tokens, spoken = self.row(i)
        last_silent = int(np.flatnonzero(~spoken)[-1])
        return tokens[: last_silent + 1]


def library_files() -> tuple[list[Path], list[Path]]:
    """The standard library's sources: (training files, held-out files), by hash of the path."""
    root = Path(sysconfig.get_path("stdlib"))
    train, held_out = [], []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if any(part in LEFT_OUT for part in name.split("/")) or path.stat().st_size > 200_000:
            continue
        share = hashlib.sha256(name.encode()).digest()[0] * 100 // 256
        (held_out if share < TEXT_HELD_OUT_PER_CENT else train).append(path)
    return train, held_out


def encode_messages(tokenizer: Tokenizer, messages: list[dict[str, str]]) -> list[int]:
    """The tokens of the chat template with the generation prompt at the end."""
    ids: list[int] = []
    newline = tokenizer.encode("\n").ids
    for message in messages:
        ids.append(IM_START)
        ids += tokenizer.encode(f"{message['role']}\n{message['content']}").ids
        ids += [IM_END, *newline]
    return [*ids, IM_START, *tokenizer.encode("assistant\n").ids]


def encode_exchange(tokenizer: Tokenizer, exchange: Exchange) -> tuple[list[int], list[bool]]:
    """The tokens of a whole exchange, and which of them the assistant says, <|im_end|> too."""
    ids: list[int] = []
    spoken: list[bool] = []
    said: list[dict[str, str]] = []
    if exchange.system is not None:
        said.append({"role": "system", "content": exchange.system})
    for user, assistant in exchange.turns:
        said.append({"role": "user", "content": user})
        prompt = encode_messages(tokenizer, said)
        new = prompt[len(ids) :]
        answer = [*tokenizer.encode(assistant).ids, IM_END]
        ids += new + answer
        spoken += [False] * len(new) + [True] * len(answer)
        said.append({"role": "assistant", "content": assistant})
    return ids, spoken


def _pack(tokenizer: Tokenizer, exchanges: list[tuple[int, Exchange]]) -> Rows:
    tokens: list[int] = []
    spoken: list[bool] = []
    offsets = [0]
    for _, exchange in exchanges:
        ids, says = encode_exchange(tokenizer, exchange)
        tokens += ids
        spoken += says
        offsets.append(len(tokens))
    return Rows(
        np.array(tokens, dtype=np.uint16),
        np.array(spoken, dtype=np.bool_),
        np.array(offsets, dtype=np.int64),
        np.array([family for family, _ in exchanges], dtype=np.uint8),
    )


def _exchanges(count: int, seed: int, *, held_out: bool) -> Iterator[tuple[int, Exchange]]:
    """`count` exchanges, the families in turn; held-out prompts all differ."""
    rng = random.Random(seed)
    seen: set[tuple[str, ...]] = set()
    families = list(FAMILIES.values())
    made = 0
    while made < count:
        family = made % len(families)
        exchange = draw(families[family], rng, held_out=held_out)
        said = tuple(m["content"] for m in exchange.messages)
        if held_out and said in seen:
            continue
        seen.add(said)
        made += 1
        yield family, exchange


def _save(path: Path, rows: Rows, text: Tokens) -> None:
    np.savez_compressed(
        path,
        tokens=rows.tokens,
        spoken=np.packbits(rows.spoken),
        lengths=np.diff(rows.offsets).astype(np.uint16),
        families=rows.families,
        text=text,
    )


def load(path: Path) -> tuple[Rows, Tokens]:
    """(exchanges, library text) of train.npz or held_out.npz."""
    with np.load(path) as data:
        offsets = np.concatenate([[0], np.cumsum(data["lengths"].astype(np.int64))])
        spoken = np.unpackbits(data["spoken"], count=int(offsets[-1])).astype(np.bool_)
        return Rows(data["tokens"], spoken, offsets, data["families"]), data["text"]


def save_answers(
    path: Path, prompts: list[list[int]], answers: list[list[int]], families: list[int]
) -> None:
    """Prompts with the target's own answers, in the form that `load` reads."""
    rows = [np.array(p + a, dtype=np.uint16) for p, a in zip(prompts, answers, strict=True)]
    spoken = [np.arange(len(r)) >= len(p) for p, r in zip(prompts, rows, strict=True)]
    offsets = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    packed = Rows(
        np.concatenate(rows), np.concatenate(spoken), offsets, np.array(families, dtype=np.uint8)
    )
    _save(path, packed, np.zeros(0, dtype=np.uint16))


def _encode_text(tokenizer: Tokenizer, files: list[Path]) -> Tokens:
    ids: list[int] = []
    for path in files:
        ids += [
            *tokenizer.encode(path.read_text(encoding="utf-8", errors="ignore")).ids,
            END_OF_TEXT,
        ]
    return np.array(ids, dtype=np.uint16)


def prepare(directory: Path, *, seed: int, train_count: int, held_out_count: int) -> None:
    """Write tokenizer/, train.npz, held_out.npz and held_out.jsonl under `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    train_files, held_out_files = library_files()
    train = list(_exchanges(train_count, seed, held_out=False))
    held_out = list(_exchanges(held_out_count, seed + 1, held_out=True))
    seen = {tuple(m["content"] for m in e.messages) for _, e in train}
    held_out = [(f, e) for f, e in held_out if tuple(m["content"] for m in e.messages) not in seen]
    # The tokenizer learns from the training side only, one part library to one part exchanges.
    library = [p.read_text(encoding="utf-8", errors="ignore") for p in train_files]
    talk = ["\n".join(m["content"] for m in e.messages) + "\n" + e.answer for _, e in train[:60000]]
    tokenizer = learn_tokenizer(library[::2] + talk)
    save_tokenizer(tokenizer, directory / "tokenizer")
    _save(directory / "train.npz", _pack(tokenizer, train), _encode_text(tokenizer, train_files))
    _save(
        directory / "held_out.npz",
        _pack(tokenizer, held_out),
        _encode_text(tokenizer, held_out_files),
    )
    names = list(FAMILIES)
    with (directory / "held_out.jsonl").open("w") as out:
        for family, exchange in held_out:
            line = {
                "family": names[family],
                "key": exchange.key,
                "messages": exchange.messages,
                "reference": exchange.answer,
            }
            out.write(json.dumps(line) + "\n")
