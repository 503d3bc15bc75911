"""Workloads and rivals of the fitness-for-use paper; a rival's figures are at privacy cost 1.

Three things that the paper does not say, or says differently, were found by trying: its random targets are
whole numbers from 1 to 10, the entries of its random queries are fair coins, and its weights multiply rows,
so that wCA-I weighs a variance by the inverse square of its target and wCA-II by the inverse.
"""

import numpy as np
from numpy.typing import NDArray

from residua.linalg.matrices import independent_rows
from residua.methods.baselines import hierarchical_matrix
from residua.solve.cells import solve_cells

Array = NDArray[np.float64]

CA_GAP = 1e-6
SHRINKAGE = 1e-3  # of the mean eigenvalue: what makes CA's problem regular where queries leave cells apart
BRANCHINGS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


def redistricting() -> Array:
    """PL94: age group, ethnicity and race marginals, and every cell; (319, 252)."""
    cells = np.eye(252).reshape(252, 2, 2, 63)
    marginals = [cells.sum(axis=axes).T for axes in ((2, 3), (1, 3), (1, 2))]
    return np.vstack([*marginals, np.eye(252)])


def pyramid() -> Array:
    """Ages up to each age, and of age, for males, for females and for all; (351, 232)."""
    ages = np.vstack([np.tri(116), np.arange(116) >= 18])
    none = np.zeros_like(ages)
    return np.vstack([np.hstack([ages, none]), np.hstack([none, ages]), np.hstack([ages, ages])])


def marginals(size: int) -> Array:
    """All 1-way and 2-way marginals of three attributes of this size."""
    cells = np.eye(size**3).reshape(-1, size, size, size)
    kept = [cells.sum(axis=axes) for axes in ((2, 3), (1, 3), (1, 2), 3, 2, 1)]
    return np.vstack([table.reshape(size**3, -1).T for table in kept])


def random_ranges(cells: int, draw: np.random.Generator) -> Array:
    """Twice as many ranges as cells, their ends drawn at random."""
    ends = np.sort(draw.integers(0, cells, (2 * cells, 2)), axis=1)
    at = np.arange(cells)
    return np.asarray((at >= ends[:, :1]) & (at <= ends[:, 1:]), dtype=np.float64)


def random_signs(cells: int, draw: np.random.Generator) -> Array:
    """Twice as many queries as cells, every entry 1 or -1."""
    return np.where(draw.random((2 * cells, cells)) < 0.5, 1.0, -1.0)


def related(cells: int, draw: np.random.Generator) -> Array:
    """WRelated: half as many queries as cells, the product of two Gaussian matrices."""
    half = cells // 2
    return np.asarray(draw.standard_normal((half, half)) @ draw.standard_normal((half, cells)))


def cells_alone(queries: Array) -> Array:
    """IP: variance of every query when independent noise is added to every cell."""
    return np.asarray(np.sum(queries**2, axis=1))


def least_total(queries: Array, weights: Array, shrinkage: float = 0.0) -> Array:
    """CA: variance of every query at the least weighted total variance."""
    if shrinkage:
        gram = (queries.T * weights) @ queries
        gram += shrinkage * np.trace(gram) / len(gram) * np.eye(len(gram))
        root = np.asarray(np.linalg.cholesky(gram).T, dtype=np.float64)
    else:
        root = independent_rows(queries, weights)
    return variances(queries, solve_cells(root, CA_GAP).strategy)


def tree(queries: Array, targets: Array) -> tuple[float, int]:
    """HM: largest ratio of a variance to its target under the best branching factor, and that factor."""
    found = []
    for branching in BRANCHINGS:
        rows = hierarchical_matrix(queries.shape[1], branching)
        cost = float(np.max(np.sum(rows, axis=0)))
        inverse = np.linalg.inv(rows.T @ rows)
        spread = np.sum((queries @ inverse) * queries, axis=1)
        found.append((cost * float(np.max(spread / targets)), branching))
    return min(found)


def variances(queries: Array, strategy: Array) -> Array:
    """Variance of every query when a strategy's rows are measured with noise of variance 1."""
    answers = np.linalg.lstsq(strategy.T, queries.T, rcond=None)[0]
    return np.asarray(np.sum(answers**2, axis=0))
