"""What an engine does: count records, and count the cells of marginals."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Engine(Protocol):
    """Counts over one dataset that has been recoded against a schema."""

    @property
    def records(self) -> int:
        """Number of records that the schema's policies leave."""

    def counts(self, subsets: NDArray[np.int32]) -> NDArray[np.int64]:
        """Exact counts of marginals of one shape: (k, attributes) to (k, cells), cells row-major.

        All rows of `subsets` have the same sizes in the same order; attributes are positions in the schema.
        """
