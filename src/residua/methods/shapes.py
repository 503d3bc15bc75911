"""Ways to solve one block: the optimum, the Fourier basis, or strategies given in advance.

Each takes the root of the block's gram and returns a strategy of cost 1 with a bracket on the best there is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from residua.linalg.centring import VANISHING
from residua.linalg.rows import independent_rows, pseudo_inverse
from residua.solve.bracket import bracket
from residua.solve.cells import solve_cells
from residua.solve.solution import Solution

Array = NDArray[np.float64]


class BlockSolver(Protocol):
    """Finds a strategy for one block.

    `products_only` if it can solve one attribute at a time alone; `asked_only` if its strategies answer
    nothing but combinations of the block's queries.
    """

    products_only: ClassVar[bool]
    asked_only: ClassVar[bool]

    def solve(
        self, root: Array, sizes: Sequence[int], tags: Sequence[int], tolerance: float, what: str
    ) -> Solution:
        """A strategy of cost 1 for queries with gram `root' root` on cells row-major over `sizes`."""


class Optimal:
    """The certified optimum of each block (QuerySmasher)."""

    products_only: ClassVar[bool] = False
    asked_only: ClassVar[bool] = True

    def solve(
        self, root: Array, sizes: Sequence[int], tags: Sequence[int], tolerance: float, what: str
    ) -> Solution:
        """The optimum within `tolerance`."""
        return solve_cells(root, tolerance).require(tolerance, f"the solver for {what}")


class Fourier:
    """The best strategy that measures real Fourier coefficients, in closed form (claim M-002).

    For uniform centring only: no other centres a row along every axis by dropping frequencies.
    With c_j the squared length of the queries along frequency j, the noise variance of coefficient j is
    proportional to `1 / sqrt(c_j)`, the diagonal of X is constant, and the value is `(sum sqrt c)^2 / cells`.
    """

    products_only: ClassVar[bool] = False
    asked_only: ClassVar[bool] = False

    def solve(
        self, root: Array, sizes: Sequence[int], tags: Sequence[int], tolerance: float, what: str
    ) -> Solution:
        """The optimum among strategies that are diagonal in the Fourier basis."""
        cells = root.shape[1]
        spectrum = np.fft.fftn(root.reshape(len(root), *sizes), axes=range(1, 1 + len(sizes)))
        power = np.abs(spectrum.reshape(len(root), -1)) ** 2 / cells  # (rows, frequencies)
        asked = np.any(power > VANISHING**2 * power.sum(axis=1, keepdims=True), axis=0)
        asked &= np.all(np.indices(sizes).reshape(len(sizes), -1) > 0, axis=0)  # centred rows have no others
        heights = np.sqrt(np.where(asked, power.sum(axis=0), 0.0))
        strategy = _real_fourier_rows(heights * cells / heights.sum(), sizes)
        value = float(heights.sum()) ** 2 / cells
        return Solution(strategy, np.full(cells, 1 / cells), uniform_bound(root), value, 1)


@dataclass(frozen=True, slots=True)
class Given:
    """One strategy per attribute, projected on what the block asks (ResidualPlanner and ResidualPlanner+).

    `matrices` has a strategy for each tag; an attribute without one gets the optimum of its own piece.
    """

    matrices: Mapping[int, Array] = field(default_factory=dict)

    products_only: ClassVar[bool] = True
    asked_only: ClassVar[bool] = True

    def solve(
        self, root: Array, sizes: Sequence[int], tags: Sequence[int], tolerance: float, what: str
    ) -> Solution:
        """The given strategy, projected on the queries' row space and scaled to cost 1."""
        (tag,) = tags
        if tag not in self.matrices:
            return Optimal().solve(root, sizes, tags, tolerance, what)
        basis = np.linalg.qr(root.T)[0]  # (cells, rank)
        rows = independent_rows(self.matrices[tag] @ basis) @ basis.T
        rows = rows / np.sqrt(np.max(np.sum(rows * rows, axis=0)))
        value = float(np.sum((root @ pseudo_inverse(rows)) ** 2))
        cells = root.shape[1]
        return Solution(rows, np.full(cells, 1 / cells), uniform_bound(root), value, 1)


def uniform_bound(root: Array) -> float:
    """The dual bound at uniform cell weights, which is the singular value bound."""
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
