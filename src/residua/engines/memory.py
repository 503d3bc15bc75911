"""Counting codes held in memory: one pass over the records for each marginal."""

import numpy as np
from numpy.typing import NDArray

from residua.errors import DataError

Codes = NDArray[np.int32]


class MemoryEngine:
    """Counts over an array of codes, shape (records, attributes)."""

    def __init__(self, codes: Codes, sizes: tuple[int, ...]) -> None:
        if codes.ndim != 2 or codes.shape[1] != len(sizes):
            raise DataError(
                f"codes must have one column for each of the {len(sizes)} attributes, not {codes.shape}"
            )
        self._columns = [np.ascontiguousarray(codes[:, at], dtype=np.int64) for at in range(len(sizes))]
        self._sizes = sizes
        self._records = len(codes)

    @property
    def records(self) -> int:
        """Number of records."""
        return self._records

    def counts(self, subsets: NDArray[np.int32]) -> NDArray[np.int64]:
        """Exact counts of marginals of one shape: (k, attributes) to (k, cells)."""
        sizes = [self._sizes[at] for at in subsets[0].tolist()] if len(subsets) else []
        cells = int(np.prod(sizes, dtype=np.int64))
        result = np.empty((len(subsets), cells), dtype=np.int64)
        for row, attributes in enumerate(subsets.tolist()):
            result[row] = self._count(attributes, cells)
        return result

    def _count(self, attributes: list[int], cells: int) -> NDArray[np.int64]:
        if not attributes:
            return np.array([self._records], dtype=np.int64)
        places = self._columns[attributes[0]]
        for at in attributes[1:]:
            places = places * self._sizes[at] + self._columns[at]
        return np.bincount(places, minlength=cells).astype(np.int64)
