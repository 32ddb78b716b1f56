"""A lab server over real HTTP, on an engine whose tokens the tests choose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddtree_ops_cli.lab.tokenizer import Tokenizer
from tests.lab.random_pair import IM_END, write_random_pair
from tests.lab.scripted_server import Client, Script
from tests.lab_server import ScriptedEngine, served


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_pair(tmp_path_factory.mktemp("pair"))[0]


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.load(directory)


@pytest.fixture
def scripted(directory: Path, tokenizer: Tokenizer) -> Iterator[Any]:
    """Start a server that writes the given text; returns the client and the engine."""
    opened: list[Any] = []

    def start(text: str = "one two three", **options: Any) -> tuple[Client, ScriptedEngine]:
        engine = ScriptedEngine(
            Script(tokenizer, text), eos_token_ids=frozenset({IM_END}), **options
        )
        context = served(engine, directory)
        opened.append(context)
        client = Client(context.__enter__())
        opened.append(client.http)
        return client, engine

    yield start
    for context in reversed(opened):
        context.__exit__(None, None, None)
