"""Asks the engine of this container whether it can generate; exit code 0 if so.

Port and address are those on the command line of process 1. /health of SGLang 0.5.17 answers 503
while it loads and generates one token afterwards.
"""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

_TIMEOUT_S = 20


def url(words: list[str]) -> str:
    """Of a command line with `--port N` or `--port=N`, `--host` alike; SGLang's own defaults."""
    found = {"--host": "127.0.0.1", "--port": "30000"}
    for place, word in enumerate(words):
        name, given, value = word.partition("=")
        if name in found and (given or place + 1 < len(words)):
            found[name] = value if given else words[place + 1]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(found["--host"], found["--host"])
    return f"http://{f'[{host}]' if ':' in host else host}:{found['--port']}/health"


def main() -> int:
    place = url(Path("/proc/1/cmdline").read_text().split("\0"))
    # No proxy of the environment is for this container itself.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(place, timeout=_TIMEOUT_S) as answer:
            return 0 if answer.status == 200 else 1
    except OSError as error:
        sys.stderr.write(f"{place}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
