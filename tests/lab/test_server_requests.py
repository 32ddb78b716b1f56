"""How the lab server reads a request: its defaults, its seed, the chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ddtree_ops_cli.lab.tokenizer import Tokenizer
from tests.lab.random_pair import IM_END
from tests.lab.scripted_server import Client, Script
from tests.lab_server import ScriptedEngine, served


def test_several_prompts_get_a_list_of_answers(scripted: Any) -> None:
    client, _ = scripted()

    answers = client.post("/generate", {"input_ids": [[1, 2], [3]]})
    alone = client.post("/generate", {"text": ["one"]})

    assert [answer["meta_info"]["prompt_tokens"] for answer in answers] == [2, 1]
    assert len(alone) == 1


def test_chat_takes_its_defaults_from_the_generation_config(
    directory: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    for file in directory.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.25, "top_k": 7}')
    engine = ScriptedEngine(Script(tokenizer, "x"), eos_token_ids=frozenset({IM_END}))
    with served(engine, tmp_path) as server, Client(server).http as http:
        chat = {"messages": [{"role": "user", "content": "x"}]}
        http.post("/v1/chat/completions", json=chat)
        http.post("/v1/chat/completions", json=chat | {"temperature": 0, "top_k": 3})
        http.post("/v1/completions", json={"prompt": "x"})

    options = [(sampling.temperature, sampling.top_k) for _, sampling in engine.asked]
    assert options == [(0.25, 7), (0.0, 3), (1.0, -1)]


def test_a_request_that_samples_has_a_seed_of_its_own_or_brings_one(scripted: Any) -> None:
    client, engine = scripted()

    client.generate()
    client.generate()
    client.generate(sampling_params={"sampling_seed": 5})
    client.generate(sampling_params={"temperature": 0})

    first, second, brought, greedy = (sampling.seed for _, sampling in engine.asked)
    assert first is not None
    assert first != second
    assert (brought, greedy) == (5, None)


def test_the_chat_template_is_filled_in(scripted: Any, tokenizer: Tokenizer) -> None:
    client, engine = scripted()

    client.post(
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            ]
        },
    )

    prompt = tokenizer.decode(engine.asked[0][0], skip_special_tokens=False)
    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
