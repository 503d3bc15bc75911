"""Names of the arrays that functions take and give, by the numbers that they hold."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]
Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]
Integers = NDArray[np.int64]
Subsets = NDArray[np.int32]
"""Attributes by their positions in the schema, (subsets, attributes), rows ascending."""
