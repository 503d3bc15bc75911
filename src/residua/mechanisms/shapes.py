"""Ways to solve one block: the optimum, the Fourier basis, or a strategy given in advance.

Each takes the root of the block's gram and returns a strategy of cost 1 with a bracket on the best there is.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from residua.linalg.rows import independent_rows
from residua.solve.bracket import bracket
from residua.solve.cells import solve_cells
from residua.solve.solution import Solution

Array = NDArray[np.float64]


def optimal_shape(root: Array, sizes: Sequence[int], tolerance: float, what: str) -> Solution:
    """The certified optimum."""
    return solve_cells(root, tolerance).require(tolerance, f"the solver for {what}")


def fourier_shape(root: Array, sizes: Sequence[int], tolerance: float, what: str) -> Solution:
    """The best strategy that measures real Fourier coefficients, in closed form (claim M-002).

    With c_j the squared length of the queries along the frequency j, the noise variance of coefficient j is
    proportional to `1 / sqrt(c_j)`, the diagonal of X is constant, and the value is `(sum sqrt c)^2 / cells`.
    """
    cells = root.shape[1]
    spectrum = np.fft.fftn(root.reshape(len(root), *sizes), axes=range(1, 1 + len(sizes)))
    power = np.sum(np.abs(spectrum) ** 2, axis=0).reshape(-1) / cells
    heights = np.sqrt(np.where(power > 1e-24 * power.max(), power, 0.0))
    strategy = _real_fourier_rows(heights * cells / heights.sum(), sizes)
    value = float(heights.sum()) ** 2 / cells
    return Solution(strategy, np.full(cells, 1 / cells), _uniform_bound(root), value, 1)


def projected_shape(matrix: Array, root: Array) -> Solution:
    """A strategy given in advance, projected on the queries' row space and scaled to cost 1."""
    basis = np.linalg.qr(root.T)[0]  # (cells, rank)
    rows = independent_rows(matrix @ basis) @ basis.T
    rows = rows / np.sqrt(np.max(np.sum(rows * rows, axis=0)))
    inverse = np.linalg.pinv(rows)
    value = float(np.sum((root @ inverse) ** 2))
    cells = root.shape[1]
    return Solution(rows, np.full(cells, 1 / cells), _uniform_bound(root), value, 1)


def _uniform_bound(root: Array) -> float:
    """The singular value bound: the dual bound at uniform cell weights."""
    return bracket(root, np.full(root.shape[1], 1.0 / root.shape[1]), precise=True).lower


def _real_fourier_rows(heights: Array, sizes: Sequence[int]) -> Array:
    """Independent rows B with `B'B = sum_j heights_j f_j f_j^*`, f_j the unit Fourier vectors."""
    cells = len(heights)
    grid = np.indices(sizes).reshape(len(sizes), -1)  # (axes, cells)
    mirror = np.ravel_multi_index(tuple((-grid) % np.array(sizes)[:, None]), tuple(sizes))
    chosen = np.flatnonzero((heights > 0) & (np.arange(cells) <= mirror))
    angles = 2 * np.pi * ((grid[:, chosen] / np.array(sizes)[:, None]).T @ grid)  # (chosen, cells)
    own = mirror[chosen] == chosen
    scale = np.sqrt(heights[chosen] * np.where(own, 1.0, 2.0) / cells)[:, None]
    return np.concatenate([scale * np.cos(angles), (scale * np.sin(angles))[~own]])
