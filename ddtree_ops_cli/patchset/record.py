"""RECORD, the installer's list of files with their hashes (PyPA's "recording installed projects").

Kept right while the set is applied, so that an uninstall removes the new files and a check of the
hashes passes. Lines that the set does not concern keep every byte.
"""

from __future__ import annotations

import base64
import csv
import hashlib
from collections.abc import Mapping


def rewritten(record: bytes, files: Mapping[str, bytes | None]) -> bytes:
    """`record` with a line for each of `files`: replaced where there is one, else appended.

    The content of a file gives its hash and size; None lists it without them.
    """
    text = record.decode("utf-8", "surrogateescape")
    lines = text.splitlines(keepends=True)
    end = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    left = {path: _line(path, content) + end for path, content in files.items()}
    result = [left.pop(_path(line), line) for line in lines]
    if result and not result[-1].endswith("\n"):
        result[-1] += end
    return "".join([*result, *left.values()]).encode("utf-8", "surrogateescape")


def _line(path: str, content: bytes | None) -> str:
    if content is None:
        return f"{path},,"
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}"


def _path(line: str) -> str:
    if not line.startswith('"'):
        return line.partition(",")[0]
    return next(csv.reader([line]))[0]
