"""The lab server as a process: how it starts, how it fails to, how it stops."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.lab.random_pair import write_random_pair
from tests.lab_server import Process, lab_process, until

LIMIT_MB = 500


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_random_pair(tmp_path_factory.mktemp("pair"))


def flags(pair: tuple[Path, Path], algorithm: str, *more: str) -> list[str]:
    return [
        *("--speculative-algorithm", algorithm),
        *("--speculative-draft-model-path", str(pair[1])),
        *more,
    ]


@pytest.fixture(scope="module")
def tree(
    pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Process, Path]]:
    directory = tmp_path_factory.mktemp("tree")
    steps = directory / "steps.jsonl"
    more = ["--speculative-ddtree-budget", "24", "--speculative-ddtree-log-steps", str(steps)]
    with lab_process(
        pair[0],
        *flags(pair, "DDTREE", *more, "--speculative-ddtree-allow-hybrid-unsafe"),
        log=directory / "log",
    ) as process:
        yield process, steps


def generate(url: str, text: str = "Once upon a time", **options: object) -> dict[str, Any]:
    params = {"temperature": 0, "max_new_tokens": 48, **options}
    answer = httpx.post(
        f"{url}/generate", json={"text": text, "sampling_params": params}, trust_env=False
    )
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_plain_linear_and_tree_say_the_same(
    pair: tuple[Path, Path], tree: tuple[Process, Path], tmp_path: Path
) -> None:
    with (
        lab_process(pair[0], log=tmp_path / "plain") as plain,
        lab_process(pair[0], *flags(pair, "DFLASH"), log=tmp_path / "linear") as linear,
    ):
        for text in ("Once upon a time", "def f(x):", "1 2 3 4"):
            answers = [generate(url, text) for url in (plain.url, linear.url, tree[0].url)]
            assert len({str(answer["output_ids"]) for answer in answers}) == 1
            figures = [answer["meta_info"] for answer in answers]
            assert "spec_verify_ct" not in figures[0]
            assert "spec_num_off_spine_drafts" not in figures[1]
            assert "spec_num_off_spine_drafts" in figures[2]


def test_each_verify_step_is_logged(tree: tuple[Process, Path]) -> None:
    meta = generate(tree[0].url)["meta_info"]

    lines = [json.loads(line) for line in tree[1].read_text().splitlines()]
    mine = [line for line in lines if line["rid"] == meta["id"]]

    assert [line["verify_step"] for line in mine] == list(range(1, meta["spec_verify_ct"] + 1))
    assert {line["mode"] for line in mine} == {"tree"}
    assert sum(sum(line["accepted"]) for line in mine) == meta["spec_num_correct_drafts"]
    assert sum(sum(line["off_spine"]) for line in mine) == meta["spec_num_off_spine_drafts"]
    assert all(line["seconds"] > 0 for line in mine)


def test_the_shadow_mode_verifies_the_chain_and_logs_what_the_tree_would_have_won(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    steps = tmp_path / "steps.jsonl"
    mode = ["--speculative-ddtree-mode", "shadow-linear"]
    seed = ["--speculative-ddtree-budget", "24", "--speculative-ddtree-chain-seed", "15"]
    more = [*mode, *seed, "--speculative-ddtree-log-steps", str(steps)]
    with (
        lab_process(pair[0], *flags(pair, "DDTREE", *more), log=tmp_path / "shadow") as shadow,
        lab_process(pair[0], *flags(pair, "DFLASH"), log=tmp_path / "linear") as linear,
    ):
        answers = [generate(process.url, "1 2 3 4") for process in (shadow, linear)]
        info = httpx.get(f"{shadow.url}/server_info", trust_env=False).json()
    meta, chain = (answer["meta_info"] for answer in answers)
    logged = [json.loads(line) for line in steps.read_text().splitlines()]

    assert answers[0]["output_ids"] == answers[1]["output_ids"]
    figures = ("spec_verify_ct", "spec_num_correct_drafts", "spec_num_proposed_drafts")
    assert [meta[name] for name in figures] == [chain[name] for name in figures]
    assert meta["spec_num_off_spine_drafts"] == 0
    assert info["speculative_ddtree_mode"] == "shadow-linear"
    assert info["speculative_num_draft_tokens"] == 16
    assert len(logged) == meta["spec_verify_ct"]
    assert {line["mode"] for line in logged} == {"shadow-linear"}
    won = [line["tree_at_least"][0] - line["accepted"][0] for line in logged]
    assert (min(won), max(won)) == (0, 1)


def test_the_server_tells_its_arguments_by_the_names_of_sglang(tree: tuple[Process, Path]) -> None:
    info = httpx.get(f"{tree[0].url}/server_info", trust_env=False).json()

    assert info["speculative_algorithm"] == "DDTREE"
    assert info["speculative_num_draft_tokens"] == 25
    assert info["speculative_ddtree_budget"] == 24
    assert info["speculative_ddtree_topk_cap"] == 8
    assert isinstance(info["speculative_ddtree_chain_seed"], int)
    assert info["speculative_ddtree_mode"] == "tree"
    assert info["speculative_ddtree_state"] == "exact"


def test_allowing_unsafe_states_is_one_notice(tree: tuple[Process, Path]) -> None:
    assert tree[0].log.read_text().count("allow-hybrid-unsafe has no effect") == 1


def test_sampled_answers_repeat_with_the_seed_of_the_request(tree: tuple[Process, Path]) -> None:
    url = tree[0].url
    first, again, other = (
        generate(url, temperature=1.0, sampling_seed=seed)["output_ids"] for seed in (1, 1, 2)
    )

    assert first == again
    assert first != other


def test_sampled_answers_repeat_with_the_seed_of_the_server(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    def answers(seed: str) -> list[object]:
        with lab_process(pair[0], "--random-seed", seed, log=tmp_path / "log") as process:
            return [generate(process.url, temperature=1.0)["output_ids"] for _ in range(2)]

    first = answers("7")

    assert first == answers("7")
    assert first[0] != first[1]


def test_the_server_is_small(tree: tuple[Process, Path]) -> None:
    generate(tree[0].url, max_new_tokens=300)

    assert psutil.Process(tree[0].popen.pid).memory_info().rss < LIMIT_MB * 2**20


def test_only_the_given_address_is_bound(tree: tuple[Process, Path]) -> None:
    listening = [
        connection.laddr.ip
        for connection in psutil.Process(tree[0].popen.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]

    assert listening == ["127.0.0.1"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_stops_the_server_promptly_even_while_it_answers(
    pair: tuple[Path, Path], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    seen: list[str] = []

    def stream(url: str) -> None:
        body = {"text": "x", "stream": True, "sampling_params": {"max_new_tokens": 1500}}
        with httpx.stream("POST", f"{url}/generate", json=body, timeout=30, trust_env=False) as got:
            seen.extend(line for line in got.iter_lines() if line)

    with lab_process(pair[0], *flags(pair, "DDTREE"), log=tmp_path / "log") as process:
        reader = threading.Thread(target=stream, args=(process.url,))
        reader.start()
        until(lambda: "/generate" in process.log.read_text())
        began = time.monotonic()
        process.popen.send_signal(number)
        ended = process.popen.wait(10)
        reader.join(10)

    assert ended == code
    assert time.monotonic() - began < 5
    assert "shutting down" in seen[-2]
    assert seen[-1] == "data: [DONE]"
    assert "Traceback" not in process.log.read_text()


def refused(*arguments: str) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, "-m", "ddtree_ops_cli.lab.server", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "--model-path"),
        (["--model-path", "x", "--nonsense"], 2, "--nonsense"),
        (["--model-path", "x", "--port", "99999"], 2, "port 99999"),
        (["--model-path", "x", "--speculative-algorithm", "EAGLE"], 2, "EAGLE"),
        (["--model-path", "x", "--speculative-algorithm", "DDTREE"], 2, "needs a drafter"),
        (["--model-path", "x", "--speculative-draft-model-path", "y"], 2, "without an algorithm"),
        (["--model-path", "x", "--speculative-ddtree-mode", "shadow"], 2, "shadow-linear"),
    ],
)
def test_wrong_arguments_are_one_line_and_the_code_of_usage(
    arguments: list[str], code: int, says: str
) -> None:
    ended, line = refused(*arguments)

    assert ended == code
    assert says in line


def test_a_shadow_without_a_log_is_one_line(pair: tuple[Path, Path]) -> None:
    shadow = flags(pair, "DDTREE", "--speculative-ddtree-mode", "shadow-linear")
    code, line = refused("--model-path", str(pair[0]), *shadow)

    assert code == 2
    assert "has no log; add --speculative-ddtree-log-steps FILE" in line


@pytest.mark.parametrize(
    "flag",
    [
        ["--speculative-ddtree-budget", "16"],
        ["--speculative-ddtree-topk-cap", "8"],
        ["--speculative-ddtree-chain-seed", "0"],
        ["--speculative-ddtree-mode", "shadow-linear"],
        ["--speculative-ddtree-allow-hybrid-unsafe"],
        ["--speculative-ddtree-log-steps", "steps"],
    ],
    ids=lambda flag: flag[0],
)
def test_a_flag_of_ddtree_without_ddtree_is_one_line(
    pair: tuple[Path, Path], flag: list[str]
) -> None:
    for others in ([], flags(pair, "DFLASH")):
        code, line = refused("--model-path", str(pair[0]), *others, *flag)

        assert code == 2
        assert f"{flag[0]} belongs to --speculative-algorithm DDTREE; drop it" in line


@pytest.mark.parametrize("budget", ["0", "-3", "257"])
def test_a_budget_out_of_range_is_one_line(pair: tuple[Path, Path], budget: str) -> None:
    more = ["--port", "0", "--speculative-ddtree-budget", budget]
    code, line = refused("--model-path", str(pair[0]), *flags(pair, "DDTREE", *more))

    assert code == 2
    assert "256" in line
    assert budget in line


def test_a_missing_model_is_one_line(tmp_path: Path) -> None:
    code, line = refused("--model-path", str(tmp_path / "nowhere"), "--port", "0")

    assert code == 1
    assert "nowhere" in line


def test_a_foreign_model_is_one_line(pair: tuple[Path, Path], tmp_path: Path) -> None:
    for file in pair[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"architectures": ["LlamaForCausalLM"], "model_type": "llama"})
    )

    code, line = refused("--model-path", str(tmp_path), "--port", "0")

    assert code == 1
    assert "config.json" in line


def test_a_missing_tokenizer_is_one_line(pair: tuple[Path, Path], tmp_path: Path) -> None:
    for file in pair[0].iterdir():
        if file.name != "tokenizer.json":
            (tmp_path / file.name).write_bytes(file.read_bytes())

    code, line = refused("--model-path", str(tmp_path), "--port", "0")

    assert code == 1
    assert "tokenizer.json" in line


def test_a_port_that_is_taken_is_one_line(pair: tuple[Path, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        code, line = refused("--model-path", str(pair[0]), "--port", port)

    assert code == 1
    assert line.startswith(f"127.0.0.1:{port}: cannot listen: Address already in use; ")


def test_a_step_log_that_cannot_be_written_is_one_line(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    log = str(tmp_path / "no" / "steps")
    more = ["--port", "0", "--speculative-ddtree-log-steps", log]
    code, line = refused("--model-path", str(pair[0]), *flags(pair, "DDTREE", *more))

    assert code == 1
    assert log in line
