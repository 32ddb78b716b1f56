"""The lab: a reference engine in NumPy, for seeing the whole of `ddtree` work without a GPU."""

import os

# The lab's matrices are small. OpenBLAS would split them over all cores and make every step wait
# for the slowest; on a machine with other work that costs up to a hundred times the step itself.
# It reads this when NumPy is first imported, so this must come before.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
