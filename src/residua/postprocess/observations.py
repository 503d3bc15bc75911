"""Block measurements as a graphical model wants them: uncorrelated numbers with one standard deviation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from residua.postprocess.covariances import PieceError, PieceErrors
from residua.postprocess.facts import Facts
from residua.postprocess.stacks import Subset, TableSet

Array = NDArray[np.float64]

KNOWN = 0.1  # standard deviation, in records, that a known table is given to a model that cannot be exact


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """What is observed of one marginal: it is centred under `means`, turned, and kept where `seen`.

    Its numbers are independent with standard deviation `stddev`. Where every direction of the piece is
    equally uncertain nothing is turned: the squared distance is the same in any coordinates (claim P-108).
    `error` is None for a known table, which is observed cell by cell.
    """

    subset: Subset
    means: tuple[Array, ...]
    error: PieceError | None
    seen: NDArray[np.bool_] | None
    scales: Array | None
    stddev: float

    def of(self, marginal: Array) -> Array:
        """The numbers observed of a marginal, shape (numbers,)."""
        if self.error is None:
            return marginal.reshape(-1)
        for axis, mean in enumerate(self.means):
            shape = [-1 if at == axis else 1 for at in range(marginal.ndim)]
            marginal = marginal - mean.reshape(shape) * marginal.sum(axis=axis, keepdims=True)
        if self.seen is None or self.scales is None:
            return marginal.reshape(-1)
        turned = self.error.rotated(marginal[None])[0]
        return np.asarray(turned[self.seen] / self.scales)


def observations(tables: TableSet, errors: PieceErrors, facts: Facts) -> list[Observation]:
    """What is observed of every marginal that was measured, the total aside."""
    found = []
    for subset in sorted(tables.places, key=lambda part: (len(part), part)):
        if not subset:
            continue
        sizes = tables.marginal(subset).shape
        if facts.margin(subset) is not None:
            found.append(Observation(subset, (), None, None, None, KNOWN))
        elif errors[subset].measured:
            found.append(_observed(subset, sizes, errors[subset]))
    return found


def _observed(subset: Subset, sizes: Sequence[int], error: PieceError) -> Observation:
    means = error.means or tuple(np.full(size, 1.0 / size) for size in sizes)
    if error.even:
        return Observation(subset, means, error, None, None, float(np.sqrt(error.variance)))
    variances = error.variances(sizes)
    seen = variances > 0
    return Observation(subset, means, error, seen, np.sqrt(variances[seen]), 1.0)
