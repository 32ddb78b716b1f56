"""Asks the engine of this container whether it can generate; exit code 0 if so.

The port is the one on the command line of process 1. /health of SGLang 0.5.17 answers 503 while it
loads and generates one token afterwards.
"""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

_TIMEOUT_S = 20


def port(words: list[str]) -> int:
    """Of `--port N` or `--port=N`; SGLang's own default without it."""
    for place, word in enumerate(words):
        name, given, value = word.partition("=")
        if name == "--port":
            return int(value if given else words[place + 1])
    return 30000


def main() -> int:
    words = Path("/proc/1/cmdline").read_text().split("\0")
    url = f"http://127.0.0.1:{port(words)}/health"
    # No proxy of the environment is for this container itself.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_TIMEOUT_S) as answer:
            return 0 if answer.status == 200 else 1
    except OSError as error:
        sys.stderr.write(f"{url}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
