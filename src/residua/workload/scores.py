"""What cells count as where their numbers are summed: themselves, or the middles or ends of their bins."""

import numpy as np

from residua._arrays import Array
from residua.errors import SchemaError, WorkloadError
from residua.schema import Attribute, Binned, Integer, Number


def cell_numbers(name: str, attribute: Attribute, *, power: int = 1, ends: bool = False) -> Array:
    """The number, to a power, that each cell counts as, (cells,); `(other)` counts nothing.

    Bins count at their declared values, at their middles, or at their upper ends.
    """
    if isinstance(attribute, Number) or (isinstance(attribute, Binned) and attribute.values and not ends):
        try:
            return attribute.moment(power)
        except SchemaError as error:
            raise WorkloadError(f"{name!r}: a sum of powers {error}") from error
    if isinstance(attribute, Integer):
        found = np.arange(attribute.low, attribute.high + 1, dtype=np.float64)
    elif isinstance(attribute, Binned) and not attribute.above:
        edges = np.array(attribute.edges, dtype=np.float64)
        found = edges[1:] if ends else (edges[1:] + edges[:-1]) / 2
    else:
        what = "its last bin has no end" if isinstance(attribute, Binned) else "its cells are no numbers"
        raise WorkloadError(f"{name!r}: {what}; say with values= what each cell counts as")
    return np.append(found**power, np.zeros(attribute.size - attribute.inner_size))
