"""Types of numpy arrays, by their elements."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyFloats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
