"""Every set of cells: as many queries as two to the number of cells, in closed form (W-007)."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from residua._arrays import AnyArray, Array
from residua._limits import PREDICATE_CELLS_LISTED, PREDICATE_CELLS_WEIGHED
from residua.errors import WorkloadError
from residua.schema import Attribute
from residua.workload import wording
from residua.workload.queries import SizedQueries, spelled


class Predicates(SizedQueries):
    """Every set of cells, the empty one too: bit `i` of a query's index says if cell `i` is in."""

    __slots__ = ()
    kind = "predicates"
    invariant = circulant = True

    @property
    def count(self) -> int:
        return 1 << self.size

    @property
    def listable(self) -> bool:
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

    def rows_at(self, indices: AnyArray) -> Array:
        """The bits of the indices, which may be longer than a machine integer."""
        places = np.arange(self.size, dtype=indices.dtype)
        shifts = places if indices.dtype == object else np.minimum(places, 63)
        return np.asarray((indices[:, None] >> shifts) & 1, dtype=np.float64)

    def answers(self, x: ArrayLike) -> Array:
        self._refuse_list()
        vector = self._vectors(x)
        out = np.zeros((*vector.shape[:-1], 1))
        for cell in range(self.size):
            out = np.concatenate([out, out + vector[..., cell : cell + 1]], axis=-1)
        return out

    def quadratic(self, covariance: ArrayLike) -> Array:
        """Each cell doubles the sets: those with it gain its variance and covariances with those without."""
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

    def phrase(self, index: int, names: Sequence[str], attributes: Sequence[Attribute]) -> str:
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
