"""What a solver returns: a mechanism, and the proof of how good it is."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residua.errors import NotConverged

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Solution:
    """A mechanism for one set of queries, with a bracket on the best one there is.

    `strategy` is B, shape (rank, cells): measuring `Bx` with independent noise of variance 1 is the
    mechanism with privacy matrix `X = B'B`; it is scaled so that the cost `max_i X_ii` is 1, and its
    total weighted variance is `upper`.
    `cell_weights` is the dual point v, shape (cells,), sum 1, that proves `lower`; a good start for a
    similar problem. Both bounds are on the total weighted variance at privacy cost 1.
    """

    strategy: Array
    cell_weights: Array
    lower: float
    upper: float
    evaluations: int

    @property
    def gap(self) -> float:
        """Relative width of the bracket: no mechanism beats this one by more."""
        return self.upper / self.lower - 1.0 if self.lower > 0 else math.inf

    def require(self, tolerance: float, what: str = "the solver") -> "Solution":
        """Itself, if its gap is at most `tolerance`; otherwise raise NotConverged with the bracket."""
        if self.gap <= tolerance:
            return self
        raise NotConverged(
            f"{what} stopped at a relative gap of {self.gap:.2e} instead of {tolerance:.0e} after "
            f"{self.evaluations} evaluations; the optimum is certainly between {self.lower:.9g} and "
            f"{self.upper:.9g}. Ask for a larger gap, or spread the weights of the queries less widely.",
            lower=self.lower,
            upper=self.upper,
        )
