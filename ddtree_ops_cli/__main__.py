"""`python -m ddtree_ops_cli` is `ddtree`."""

from .cli import main

if __name__ == "__main__":
    main()
