"""What of a long log is shown when an engine does not start."""

from __future__ import annotations

import pytest

from ddtree_ops_cli.services.boot_log import plain, telling

LOADING = [f"[2026-01-01 00:00:{n:02}] Loading shard {n} of 60, avail mem=94 GB" for n in range(60)]
TRACEBACK = [
    "Scheduler hit an exception: Traceback (most recent call last):",
    *[
        line
        for n in range(30)
        for line in (f'  File "/opt/sglang/layer{n}.py", line {n}, in forward', f"    self.f{n}(x)")
    ],
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.50 GiB.",
]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[32mready\x1b[0m 模型 🚫\n", "ready 模型 🚫"),
        ("\x1b]0;title\x07text\r\n", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\r 10%|#   |\r 50%|##  |\r100%|####|", "100%|####|"),
        ("a\tb\x07\x00c\x1b[2Jd\x9b31m", "a\tb\ufffd\ufffdcd\ufffd31m"),
        ("\u202etxt", "\ufffdtxt"),
    ],
)
def test_a_line_holds_nothing_that_a_terminal_would_obey(line: str, shown: str) -> None:
    assert plain(line) == shown


def test_a_short_log_is_told_whole() -> None:
    assert telling(LOADING[:20]) == LOADING[:20]


def test_of_a_long_log_the_error_and_the_end_are_told() -> None:
    said = telling([*LOADING, *TRACEBACK, *LOADING[:3]])
    assert said == [
        "...",
        TRACEBACK[0],
        "...",
        "    self.f29(x)",
        TRACEBACK[-1],
        *LOADING[:3],
    ]


def test_the_first_error_outlives_the_flood_that_it_causes() -> None:
    flood = [f"ERROR worker {chr(97 + n)}: connection refused by {chr(97 + n)}" for n in range(26)]
    said = telling([*LOADING, "CUDA error: no kernel image is available", *flood], most=10)
    assert said[1] == "CUDA error: no kernel image is available"
    assert said[-1] == flood[-1]
    assert len([line for line in said if line != "..."]) == 10


def test_what_sglang_writes_at_every_start_does_not_hide_the_cause() -> None:
    options = "[10:00:00] server_args=ServerArgs(abort_on_priority=False, requires_grad=False)"
    # Each class is another line; a start of SGLang 0.5.17 has some of them.
    classes = [
        f"[10:00:01] Ignore import error when loading sglang.srt.models.{name}: No module named x"
        for name in ("inkling", "midashenglm", *(f"model_{chr(97 + n)}" for n in range(20)))
    ]
    said = telling([options, *classes, *LOADING, TRACEBACK[-1], *LOADING[:3]], most=10)
    assert said == ["...", LOADING[-1], TRACEBACK[-1], *LOADING[:3]]


@pytest.mark.parametrize("before", [0, 60])
def test_a_line_without_end_is_cut(before: int) -> None:
    [*_, last] = telling([*LOADING[:before], "error: " + 5000 * "x"])
    assert last == "error: " + 393 * "x" + " ..."


def test_what_is_repeated_is_told_once() -> None:
    again = [f"[00:00:{n:02}] Xid 79 error at step {n}" for n in range(50)]
    assert telling([*again, *LOADING]) == [again[0], "...", *LOADING[-5:]]
