"""`ddtree`, held at a step of a playbook: before it is applied, or after, before that is told.

    python -m tests.rollout.held_at STEP before|after FILE SECONDS -- ddtree's words

It makes FILE when it gets there, and goes on when FILE is gone. What happens to it, to the host
or to the link meanwhile is the fault under test. SECONDS is how long it waits for a host whose link
was cut.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

from ddtree_ops_cli.__main__ import main
from ddtree_ops_cli.rollout import audit
from ddtree_ops_cli.rollout.operations import OPERATIONS


def hold(step: str, when: str, file: Path) -> None:
    operation = type(OPERATIONS[step])
    apply = operation.apply

    def held(*arguments: Any) -> None:
        if when == "before":
            _wait(file)
        apply(*arguments)
        if when == "after":
            _wait(file)

    operation.apply = held  # type: ignore[method-assign]


def _wait(file: Path) -> None:
    file.touch()
    while file.exists():
        time.sleep(0.02)


if __name__ == "__main__":
    # A job that a shell runs in the background ignores Ctrl-C from its birth.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    step, when, file, come_back_s, _, *words = sys.argv[1:]
    hold(step, when, Path(file))
    audit._COME_BACK_S = float(come_back_s)
    sys.argv = ["ddtree", *words]
    main()
