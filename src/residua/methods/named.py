"""The published divide-and-conquer methods by name, each a way to solve blocks under uniform centring."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from residua.bounds import all_invariant
from residua.decompose import decompose
from residua.errors import WorkloadError
from residua.methods.blocks import Fourier, Given, Optimal, solve_blocks
from residua.methods.draft import Draft, Progress
from residua.workload import Identity, Queries, Table, TableRun, Total, Workload

Array = NDArray[np.float64]


def querysmasher(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """Every block solved to a certified gap."""
    draft = solve_blocks(decompose(work), work.schema.sizes, Optimal(), tolerance, progress)
    return _widened(work, draft)


def fourier(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """Every block measured in the Fourier basis: weighted Fourier factorisation."""
    return solve_blocks(decompose(work), work.schema.sizes, Fourier(), tolerance, progress)


def residualplanner(work: Workload, tolerance: float, progress: Progress | None = None) -> Draft:
    """Marginals only: every block measures all centred cells, which is optimal for marginals."""
    refuse_all_but_marginals(work)
    sizes = work.schema.sizes
    numbers = {size: number for number, size in enumerate(dict.fromkeys(sizes))}
    matrices = {number: np.eye(size) for size, number in numbers.items()}
    parts = decompose(work, tags=[numbers[size] for size in sizes])
    return _widened(work, solve_blocks(parts, sizes, Given(matrices), tolerance, progress))


def refuse_all_but_marginals(work: Workload) -> None:
    """Raise WorkloadError for a workload with other families than identity and total."""
    for part in work.parts:
        for queries in set(_families(part)):
            if not isinstance(queries, Identity | Total):
                raise WorkloadError(
                    f"method 'residualplanner' plans marginals only, and the workload has {queries!r}; "
                    "use method 'querysmasher' or 'auto'"
                )


def residualplanner_plus(
    work: Workload,
    tolerance: float,
    progress: Progress | None = None,
    strategies: Mapping[str, ArrayLike] | None = None,
) -> Draft:
    """One strategy per attribute in all blocks: those given by name, otherwise the best for each block."""
    schema = work.schema
    tags = [0] * len(schema)
    matrices: dict[int, Array] = {}
    for name, matrix in (strategies or {}).items():
        at = schema.position(name)
        rows = np.asarray(matrix, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != schema.sizes[at] or not np.isfinite(rows).all():
            raise WorkloadError(
                f"the strategy for attribute {name!r} must be a finite matrix with "
                f"{schema.sizes[at]} columns, not one of shape {rows.shape}"
            )
        if np.linalg.matrix_rank(rows) < schema.sizes[at]:
            raise WorkloadError(
                f"the strategy for attribute {name!r} does not determine its "
                f"{schema.sizes[at]} cells; add rows"
            )
        tags[at] = at + 1
        matrices[at + 1] = rows
    return solve_blocks(decompose(work, tags=tags), schema.sizes, Given(matrices), tolerance, progress)


def _widened(work: Workload, draft: Draft) -> Draft:
    """The draft, with its bound for all mechanisms where no other structure can be better (claim B-003)."""
    return replace(draft, scope="all mechanisms") if all_invariant(work) else draft


def _families(part: Table | TableRun) -> list[Queries]:
    if isinstance(part, Table):
        return [factor.queries for factor in part.factors]
    if part.joint is not None:
        return list(part.joint)
    return [factor.queries for factor in part.factors if factor is not None]
