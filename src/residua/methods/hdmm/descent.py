"""Quasi-Newton steps downhill over numbers that must not be negative."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def downhill(
    value_of: Callable[[Array], tuple[float, Array]],
    start: Array,
    *,
    steps: int,
    gain: float,
    most: float = np.inf,
) -> Array:
    """The point that steps from `start`, of any shape, reach; `value_of` gives a value and its gradient.

    They end where one gains less than `gain`, relative to the value at the start; no number exceeds `most`.
    """
    from scipy.optimize import Bounds, minimize

    unit = value_of(start)[0]

    def scaled(flat: Array) -> tuple[float, Array]:
        value, gradient = value_of(flat.reshape(start.shape))
        return value / unit, gradient.reshape(-1) / unit

    found = minimize(
        scaled,
        start.reshape(-1),
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(0.0, most),
        options={"maxiter": steps, "maxfun": 4 * steps, "ftol": gain, "gtol": 1e-10, "maxcor": 15},
    )
    return np.asarray(found.x).reshape(start.shape)
