"""Families that treat every cell alike: identity, total and predicates."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from residua.errors import WorkloadError
from residua.schema import Attribute
from residua.workload import wording
from residua.workload.queries import Array, SizedQueries, spelled

PREDICATE_CELLS_LISTED = 20  # 2^20 answers; each further cell doubles them
PREDICATE_CELLS_WEIGHED = 1024  # 2^(n-1) on the gram's diagonal is finite up to here


class Identity(SizedQueries):
    """One query per cell."""

    __slots__ = ()
    kind = "identity"
    invariant = True
    circulant = True

    @property
    def count(self) -> int:
        """As many queries as cells."""
        return self.size

    def gram(self, *, weighted: bool = True) -> Array:
        """The identity matrix."""
        return np.eye(self.size)

    def root(self) -> Array:
        """The identity matrix."""
        return np.eye(self.size)

    def rows_at(self, indices: NDArray[np.int64]) -> Array:
        """Unit vectors."""
        return np.asarray((indices[:, None] == np.arange(self.size)).astype(np.float64))

    def answers(self, x: ArrayLike) -> Array:
        """A copy of the counts."""
        return self._vectors(x).copy()

    def quadratic(self, covariance: ArrayLike) -> Array:
        """The diagonal of the covariance."""
        return np.diagonal(self._squares(covariance), axis1=-2, axis2=-1).copy()

    def trace(self, covariance: ArrayLike, *, weighted: bool = False) -> Array:
        """The trace of the covariance."""
        return np.asarray(np.sum(self.quadratic(covariance), axis=-1))

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """`sex = F`."""
        return wording.one_cell(names[0], attributes[0], index)


class Total(SizedQueries):
    """The one query that counts everybody."""

    __slots__ = ()
    kind = "total"
    invariant = True
    circulant = True

    @property
    def count(self) -> int:
        """One query."""
        return 1

    def gram(self, *, weighted: bool = True) -> Array:
        """All ones."""
        return np.ones((self.size, self.size))

    def root(self) -> Array:
        """A row of ones."""
        return np.ones((1, self.size))

    def rows_at(self, indices: NDArray[np.int64]) -> Array:
        """Rows of ones."""
        return np.ones((len(indices), self.size))

    def answers(self, x: ArrayLike) -> Array:
        """The sum of the counts."""
        return np.asarray(np.sum(self._vectors(x), axis=-1, keepdims=True))

    def quadratic(self, covariance: ArrayLike) -> Array:
        """The sum of the covariance."""
        return np.asarray(np.sum(self._squares(covariance), axis=(-2, -1))[..., None])

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """Nothing: the query does not look at the attribute."""
        return ""


class Predicates(SizedQueries):
    """Every set of cells, the empty one too: bit `i` of a query's index says if cell `i` is in."""

    __slots__ = ()
    kind = "predicates"
    invariant = True
    circulant = True

    @property
    def count(self) -> int:
        """Two to the number of cells."""
        return 1 << self.size

    @property
    def listable(self) -> bool:
        """Up to 20 cells."""
        return self.size <= PREDICATE_CELLS_LISTED

    def gram(self, *, weighted: bool = True) -> Array:
        """`2^(n-2) (I + 11')`: a pair of cells is in a quarter of all sets (W-007)."""
        self._refuse_overflow()
        return math.ldexp(1.0, self.size - 2) * (np.eye(self.size) + 1.0)

    def mean_gram(self) -> Array:
        """`(I + 11') / 4` for any number of cells."""
        return 0.25 * (np.eye(self.size) + 1.0)

    def root(self) -> Array:
        """The symmetric root `2^(n/2-1) (I + 11' / (1 + sqrt(n+1)))` (W-007)."""
        self._refuse_overflow()
        scale = math.sqrt(math.ldexp(1.0, self.size - 2))
        return scale * (np.eye(self.size) + 1.0 / (1.0 + math.sqrt(self.size + 1.0)))

    def rows(self, start: int, stop: int) -> Array:
        """The bits of the indices, which may be longer than a machine integer."""
        if not 0 <= start <= stop <= self.count:
            raise IndexError(f"{self!r} has no rows {spelled(start)}..{spelled(stop)}")
        if stop <= 1 << 62:
            return self.rows_at(np.arange(start, stop, dtype=np.int64))
        bits = [[(index >> cell) & 1 for cell in range(self.size)] for index in range(start, stop)]
        return np.array(bits, dtype=np.float64).reshape(stop - start, self.size)

    def rows_at(self, indices: NDArray[np.int64]) -> Array:
        """The bits of the indices."""
        shifts = np.minimum(np.arange(self.size, dtype=np.int64), 63)
        return ((indices[:, None] >> shifts) & 1).astype(np.float64)

    def answers(self, x: ArrayLike) -> Array:
        """Sums over every set; refused above 20 cells."""
        self._refuse_list()
        vector = self._vectors(x)
        out = np.zeros((*vector.shape[:-1], 1))
        for cell in range(self.size):
            out = np.concatenate([out, out + vector[..., cell : cell + 1]], axis=-1)
        return out

    def quadratic(self, covariance: ArrayLike) -> Array:
        """Variances of every set; refused above 20 cells."""
        self._refuse_list()
        P = self._squares(covariance)
        both = P + np.swapaxes(P, -1, -2)
        out = np.zeros((*P.shape[:-2], 1))
        cross = np.zeros((*P.shape[:-2], self.size, 1))  # covariance of each later cell with each set
        for cell in range(self.size):
            grown = out + P[..., cell, cell, None] + cross[..., 0, :]
            out = np.concatenate([out, grown], axis=-1)
            later = cross[..., 1:, :]
            cross = np.concatenate([later, later + both[..., cell + 1 :, cell, None]], axis=-1)
        return out

    def trace(self, covariance: ArrayLike, *, weighted: bool = False) -> Array:
        """`2^(n-2)` times the covariance's trace plus its sum."""
        self._refuse_overflow()
        P = self._squares(covariance)
        inner = np.trace(P, axis1=-2, axis2=-1) + np.sum(P, axis=(-2, -1))
        return np.asarray(math.ldexp(1.0, self.size - 2) * inner)

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
        """`sex in {F, M}`."""
        members = [cell for cell in range(self.size) if (index >> cell) & 1]
        return wording.cell_set(names[0], attributes[0], members)

    def _refuse_overflow(self) -> None:
        if self.size > PREDICATE_CELLS_WEIGHED:
            raise WorkloadError(
                f"{self!r}: the gram of {spelled(self.count)} queries overflows; "
                f"mean_gram() does not, and up to {PREDICATE_CELLS_WEIGHED} cells neither does the gram"
            )

    def _refuse_list(self) -> None:
        if not self.listable:
            raise WorkloadError(
                f"{self!r}: {spelled(self.count)} queries cannot be listed; "
                f"predicates are listed up to {PREDICATE_CELLS_LISTED} cells"
            )
