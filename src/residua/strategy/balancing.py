"""Rounding that keeps the lengths of columns: the longest one sets the privacy cost."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LOOKED_AT = 3 * 10**7  # entries, over all steps
MULTIPLIED = 5 * 10**7  # pairs of entries, over all steps: a larger block has less to gain


def balanced(wanted: Array, rounded: Array, *, zero_sums: bool) -> Array:
    """The rounded rows with some entries moved by one, so that columns are as long as those wanted.

    In an optimal strategy all columns that matter are equally long. Rounding disturbs their lengths far more
    than the answers, and the longest sets the cost: so mend the worst column, where that takes the least
    rounding error, until nothing is gained. With `zero_sums` another entry of the row makes up for each move.
    """
    rounded = rounded.copy()
    aims = np.sum(wanted * wanted, axis=0)
    excess = np.sum(rounded * rounded, axis=0) - aims
    price = float(np.sqrt(aims.max()))  # of squared rounding error, small beside a squared excess
    for _ in range(min(4 * wanted.shape[1], LOOKED_AT // wanted.size)):
        worst = int(np.argmax(np.abs(excess)))
        move = np.where(rounded[:, [worst]] * excess[worst] > 0, -1.0, 1.0)  # (rows, 1)
        change = _change(excess, move * rounded, price, move * (rounded - wanted))[:, [worst]]
        if zero_sums:
            change = change + _change(excess, -move * rounded, price, -move * (rounded - wanted))
            change[:, worst] = np.inf
        row, other = divmod(int(np.argmin(change)), change.shape[1])
        if change[row, other] >= 0:
            break
        rounded[row, worst] += move[row, 0]
        if zero_sums:
            rounded[row, other] -= move[row, 0]
        moved = [worst, other] if zero_sums else [worst]
        excess[moved] = np.sum(rounded[:, moved] ** 2, axis=0) - aims[moved]
    return rounded


def balanced_within(wanted: Array, rounded: Array, basis: Array) -> Array:
    """The same for rows that stay whole combinations of a basis: its rows, or their negatives, are added."""
    rounded = rounded.copy()
    aims = np.sum(wanted * wanted, axis=0)
    price = float(np.sqrt(aims.max()))
    for _ in range(min(4 * wanted.shape[1], MULTIPLIED // (wanted.size * len(basis)))):
        excess = np.sum(rounded * rounded, axis=0) - aims
        worst = int(np.argmax(np.abs(excess)))
        steps = basis[basis[:, worst] != 0]
        if not len(steps):
            break  # nothing reaches this column: its excess is rounding, and no other's is larger
        steps = np.concatenate([steps, -steps])
        squares = steps * steps
        # For each row r and step s the sum of (excess + 2 r s + s^2)^2 - excess^2, multiplied out.
        change = 4 * (rounded * excess + price / 2 * (rounded - wanted)) @ steps.T
        change += 4 * (rounded * rounded) @ squares.T + 4 * rounded @ (squares * steps).T
        change += 2 * squares @ excess + price * squares.sum(axis=1) + (squares * squares).sum(axis=1)
        row, step = divmod(int(np.argmin(change)), change.shape[1])
        if change[row, step] >= 0:
            break
        rounded[row] += steps[step]
    return rounded


def _change(excess: Array, products: Array, price: float, errors: Array) -> Array:
    """What moving an entry by one changes: the squared excess of its column, and its squared error."""
    return np.asarray((excess + 2 * products + 1) ** 2 - excess**2 + price * (1 + 2 * errors))
