"""Names of the arrays that functions take and give, by the numbers that they hold, and of what files hold."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]
Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]
Integers = NDArray[np.int64]

Arrays = Mapping[str, AnyArray]
Manifest = Mapping[str, Any]

Subset = tuple[int, ...]
"""Attributes by their positions in the schema, ascending."""

Subsets = NDArray[np.int32]
"""Subsets of equally many attributes, (subsets, attributes)."""
