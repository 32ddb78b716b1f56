"""Imports the lab before any test imports NumPy, which reads the number of BLAS threads then."""

import ddtree_ops_cli.lab  # noqa: F401
