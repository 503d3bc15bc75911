"""Low-rank blocks that stall first-order solvers: two-way affine and absolute difference, and centred.

The queries `i + j <= c` and `|i - j| <= c` of two attributes of n cells each, and their projections
`W (C kron C)` with `C = I - 11'/n`, to a gap of 1e-4 on one BLAS thread. Prints seconds, evaluations, the
gap, and the ratio to one evaluation of both bounds at uniform weights, measured in the same run.

Fails if a gap is not reached. Seconds are indicative.
"""

import sys
from functools import partial

import numpy as np
from _timing import Limits, timed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from residua.linalg.matrices import independent_rows
from residua.solve.cells import bracket, solve_cells
from residua.workload.groupings import AbsDiff, Affine

Array = NDArray[np.float64]

SIZES = (4, 10, 20, 40, 50)
GAP = 1e-4
LINE = "{:<10}{:<9}{:>4}{:>7}{:>7}{:>10}{:>13}{:>10}{:>12}{:>15}"


def centred(rows: Array, size: int) -> Array:
    """Independent rows that span the queries with every row and column mean taken off."""
    tables = rows.reshape(-1, size, size)
    tables = tables - tables.mean(axis=1, keepdims=True)
    tables = tables - tables.mean(axis=2, keepdims=True)
    return independent_rows(tables.reshape(len(rows), -1))


def measure(limits: Limits, name: str, part: str, size: int, root: Array) -> None:
    """Solve one block and print its row."""
    repeats = 5
    one = min(timed(partial(bracket, root, np.ones(root.shape[1]))).cpu for _ in range(repeats))
    run = timed(partial(solve_cells, root, GAP))
    found = run.result
    optimum = f"{found.upper:.6g}"
    ratio = f"{run.cpu / one:.0f}"
    rank, cells = root.shape
    print(
        LINE.format(
            name,
            part,
            size,
            rank,
            cells,
            f"{run.cpu:.3f}",
            found.evaluations,
            f"{found.gap:.1e}",
            ratio,
            optimum,
        ),
        flush=True,
    )
    limits.check(found.gap <= GAP, f"{name} {part} {size}: gap {found.gap:.1e}, not {GAP:.0e}")


def main() -> int:
    limits = Limits()
    heads = (
        "queries",
        "",
        "n",
        "rank",
        "cells",
        "cpu s",
        "evaluations",
        "gap",
        "cpu/bounds",
        "total variance",
    )
    print(LINE.format(*heads))
    with threadpool_limits(limits=1, user_api="blas"):
        for family in (Affine, AbsDiff):
            for size in SIZES:
                queries = family(size, size)
                measure(limits, queries.kind, "whole", size, queries.root())
                measure(limits, queries.kind, "centred", size, centred(queries.matrix(), size))
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
