"""Names of the arrays that functions take and give, by the numbers that they hold, and of what files hold.

And how the fields of what is frozen are set, while it is made.
"""

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


def settle(frozen: object, **values: Any) -> None:
    """Set fields of an object that is frozen; arrays among them are read-only from then on."""
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
        object.__setattr__(frozen, name, value)
