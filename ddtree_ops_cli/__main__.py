"""Where `ddtree` begins: `python -m ddtree_ops_cli` and the console script."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Ctrl-C ends with one line and 130 also while the program is still being loaded."""
    # Whoever closes an output (`>&-`) wants none of it; Python has no stream there at all.
    if sys.stdout is None or sys.stderr is None:
        nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115, open until the end
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    try:
        from .cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
