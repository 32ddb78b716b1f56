"""Where the kernels of these tests run: interpreted on the CPU, or on a GPU (`make test-gpu`)."""

import os

DEVICE = os.environ.get("DDTREE_DEVICE", "cpu")
