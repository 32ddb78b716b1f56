"""The log of an engine as people need it: plain lines, and of a failed start the telling ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours and cursor moves (ECMA-48, CSI)
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles and links (OSC)
    r"|[@-Z\\^_])"
)
_TELLING = re.compile(
    r"error|exception|traceback|fatal|critical|failed|cannot|can't|not found|no such"
    r"|out of memory|oom|killed|signal|segmentation|abort|assert|refus|denied|mismatch"
    r"|undefined symbol|no kernel image|requires|unsupported|unrecognized|invalid|xid",
    re.IGNORECASE,
)
# SGLang writes these at every start: all its options, whose names are full of such words, and each
# model class whose optional packages are not there.
_USUAL = re.compile(r"server_args=ServerArgs\(|Ignore import error when loading")
_FRAME = re.compile(r'^\s+File ".*", line \d+|^\s{4,}\S')
_END = 5
"""The last lines are shown whatever they say."""
_WIDTH = 400
"""Characters of a line."""


def plain(line: str) -> str:
    """Without what a terminal would obey; of a progress bar, what it showed last."""
    text = _ESCAPES.sub("", line).rstrip("\r\n")
    text = text.rsplit("\r", 1)[-1]
    return "".join(c if c.isprintable() or c == "\t" else "\ufffd" for c in text)


def telling(lines: Sequence[str], *, most: int = 20) -> list[str]:
    """What says why an engine did not start: its errors, and the end; a short log is told whole.

    Frames of tracebacks are left out but for the last of each; what is repeated is told once; a
    gap is marked with `...`.
    """
    if len(lines) <= most:
        return [_cut(line) for line in lines]
    chosen: list[int] = []
    seen: set[str] = set()
    for at, line in enumerate(lines):
        last_frame = (
            _FRAME.match(line) and at + 1 < len(lines) and not lines[at + 1].startswith(" ")
        )
        wanted = last_frame or (
            _TELLING.search(line) and not _FRAME.match(line) and not _USUAL.search(line)
        )
        key = re.sub(r"\d+", "0", line).strip()
        if (wanted and key not in seen) or (at >= len(lines) - _END and line.strip()):
            seen.add(key)
            chosen.append(at)
    if len(chosen) > most:
        # The first error is the cause more often than the last, and the end says what came of it.
        chosen = [*chosen[: most // 2], *chosen[-(most - most // 2) :]]
    shown: list[str] = []
    for number, at in enumerate(chosen):
        if at > (chosen[number - 1] + 1 if number else 0):
            shown.append("...")
        shown.append(_cut(lines[at]))
    return shown


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else f"{line[:_WIDTH]} ..."
