"""Cells that may change places: in even and odd coordinates a gram falls into two parts (claim S-012)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from residua._arrays import Array, Indices

SAME = 2e-15  # of the largest entry: what the order of a sum changes


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """An exchange of cells in pairs; a cell that stays is a pair with itself, and those come last.

    `first` and `second` are the cells of each pair, (pairs,); the first `odd` of them are two cells.
    """

    first: Indices
    second: Indices
    odd: int

    @classmethod
    def of_attributes(cls, sizes: Sequence[int], one: int, two: int) -> "Fold":
        """Two attributes of equal sizes change places; cells are row-major."""
        cells = np.arange(int(np.prod(sizes)))
        other = cells.reshape(sizes).swapaxes(one, two).reshape(-1)
        twice, alone = np.flatnonzero(cells < other), np.flatnonzero(cells == other)
        return cls(np.concatenate([twice, alone]), np.concatenate([other[twice], alone]), len(twice))

    @property
    def lengths(self) -> Array:
        """Square roots of the numbers of cells of the pairs."""
        return np.sqrt(np.where(self.first == self.second, 1.0, 2.0))

    def keeps(self, values: Array) -> bool:
        """Whether the exchange leaves a gram as it is, or weights of the cells."""
        one, two = self.first, self.second
        allowed = SAME * float(np.abs(values).max())
        own = values if values.ndim == 1 else np.diagonal(values)
        if np.abs(own[one] - own[two]).max() > allowed:
            return False
        # The other rows say the same, as a gram is symmetric.
        return values.ndim == 1 or float(np.abs(values[one] - values[two][:, self._other]).max()) <= allowed

    def parts(self, gram: Array) -> tuple[Array, Array]:
        """The gram in even coordinates, (pairs, pairs), and in odd ones, (odd, odd): all its eigenvalues."""
        rows, odd, lengths = gram[self.first], self.odd, self.lengths
        same, across = rows[:, self.first], rows[:, self.second]
        even = (same + across) * (0.5 * lengths) * lengths[:, None]
        apart = same[:odd, :odd] - across[:odd, :odd]
        return (even + even.T) / 2, (apart + apart.T) / 2

    def gathered(self, weights: Array) -> Array:
        """Weights of the pairs from those of the cells."""
        return np.asarray(np.where(self.first == self.second, 0.5, 1.0) * weights[self._both].sum(axis=0))

    def spread(self, weights: Array) -> Array:
        """Weights of the cells from those of the pairs."""
        found = np.zeros(self.odd + len(self.first))
        found[self._both] = weights / self.lengths**2
        return found

    def rows(self, folded: Array) -> Array:
        """Rows over the cells from rows over the pairs, of which the last `odd` are odd."""
        found = np.empty((len(folded), self.odd + len(self.first)))
        found[:, self.second] = folded
        found[-self.odd :, self.second] *= -1.0
        found[:, self.first] = folded
        return found

    @property
    def _other(self) -> Indices:
        """For each cell the one that it changes places with."""
        found = np.empty(self.odd + len(self.first), dtype=np.intp)
        found[self.first], found[self.second] = self.second, self.first
        return found

    @property
    def _both(self) -> Indices:
        return np.stack([self.first, self.second])


def exchange(gram: Array, sizes: Sequence[int]) -> Fold | None:
    """An exchange of two attributes that leaves a gram over their joint cells as it is, if there is one."""
    for one, two in combinations(range(len(sizes)), 2):
        if sizes[one] == sizes[two] > 1:
            fold = Fold.of_attributes(sizes, one, two)
            if fold.keeps(gram):
                return fold
    return None
