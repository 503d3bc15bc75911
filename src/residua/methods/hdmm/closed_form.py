"""The best weights of nested terms for Gaussian noise in closed form, where there is one (claim H-027)."""

import math
from collections.abc import Mapping

from residua.answering.nested import Subset

ROUNDING = 1e-12  # of a residual's precision: what cancellation leaves of a weight that is zero


def closed_form(demand: Mapping[Subset, float], spreads: Mapping[int, float]) -> dict[Subset, float] | None:
    """Squared weights of the terms to measure, of sum 1; None where the formula does not apply.

    `demand` has what is asked of every residual, by its attributes, ascending; `spreads` has the variance of
    the total in each attribute's strategy, at cost 1. The sum of demand over precision is then the square of
    `sum_A sqrt(h_A c_A)`, `c_A` the product of `1 - 1/s_i`, and no weights on any terms have less.

    >>> closed_form({(): 4.0, (0,): 2.0}, {0: 2.0})
    {(): 0.3333333333333333, (0,): 0.6666666666666666}
    >>> closed_form({(): 0.1, (0,): 2.0}, {0: 2.0}) is None
    True
    """
    shares = {residual: math.prod(1 - 1 / spreads[at] for at in residual) for residual in demand}
    if min(shares.values()) <= 0 or not _closed_downwards(demand):
        return None
    size = math.fsum(math.sqrt(demand[residual] * share) for residual, share in shares.items())
    precision = {residual: math.sqrt(demand[residual] / share) / size for residual, share in shares.items()}
    squares = dict(precision)
    for at, spread in spreads.items():  # inclusion and exclusion, an attribute at a time
        for residual in squares:
            larger = _with(residual, at)
            if at not in residual and larger in squares:
                squares[residual] -= squares[larger] / spread
    if any(square < -ROUNDING * precision[term] for term, square in squares.items()):
        return None
    return {term: square for term, square in squares.items() if square > ROUNDING * precision[term]}


def _closed_downwards(demand: Mapping[Subset, float]) -> bool:
    """Whether with every residual all residuals of fewer of its attributes are asked about."""
    return all(
        residual[:place] + residual[place + 1 :] in demand
        for residual in demand
        for place in range(len(residual))
    )


def _with(residual: Subset, at: int) -> Subset:
    return tuple(sorted((*residual, at)))
