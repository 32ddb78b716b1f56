"""Where `ddtree` begins: `python -m ddtree_ops_cli` and the console script."""

from __future__ import annotations

import sys


def main() -> None:
    """Ctrl-C ends with one line and 130 also while the program is still being loaded."""
    try:
        from .cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
