"""The two array types of the lab: everything the models compute is float32, indices are intp."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Indices = NDArray[np.intp]
