"""The singular value bound of four workloads, and what well-known strategies make of it.

Li and Miklau, Optimal error of query sets under the differentially-private matrix mechanism, Table 2.
All errors are ratios to the bound at the same privacy. On several attributes the printed Hierarchical and
Wavelet figures are those of Kronecker products of the one-dimensional matrices (on 64 x 32 cells a quadtree
would have the ratio 5.27 and a k-d tree 7.14). What the printed table has otherwise, each a row below:

- ALLRANGE(2048), Hierarchical: the printed 1.776 is the ratio on 1024 cells; on 2048 cells it is 1.773.
- ALLRANGE(64, 32), supreme bound: leaving out the first and last of the 64 cells gives 1.0007.
- ALLPREDICATE(1024), Hierarchical and Wavelet: the printed figures are exchanged.
- ALLPREDICATE(1024), bound: the printed digits belong to the power 10^310, by the paper's Corollary 5.1 too.

The paper's Eigen Design column stands beside our certified optimum, which must not be above it.
Takes about four minutes; `--fast` leaves out ALLRANGE(2048).
"""

import sys
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
from _comparison import Comparison, only_fast
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import residua as rs
from residua.linalg.grams import inverse_gram
from residua.methods.baselines import hierarchical_matrix, wavelet_matrix
from residua.solve.cells import bracket, solve_cells
from residua.workload.predicates import Predicates

Array = NDArray[np.float64]

COST_ONE = rs.privacy_cost(1)
PREDICATE_CELLS = 1024


@dataclass(frozen=True, slots=True)
class Printed:
    """One row of the paper's table, as text."""

    svdb: str
    supreme: str
    identity: str
    hierarchical: str
    wavelet: str
    eigen: str


RANGES_2048 = Printed("3.034e7", "1.001", "47.25", "1.776", "1.545", "1.028")
RANGES_64_32 = Printed("2.261e7", "1.000", "12.11", "2.996", "1.899", "1.107")
RANGES_TWOS = Printed("5.242e5", "1.000", "2.000", "2.000", "2.000", "1.000")
PREDICATES = Printed("4.885e156", "1.000", "1.884", "3.464", "6.292", "1.000")


def ranges(sizes: list[int]) -> rs.Workload:
    """All products of ranges."""
    schema = rs.Schema.of_sizes(sizes)
    return rs.table(schema, dict.fromkeys(schema.names, rs.ranges))


def ratio(work: rs.Workload, method: str) -> float:
    """Total variance of a method over the singular value bound."""
    return rs.plan(work, COST_ONE, method=method).ideal.total_variance / rs.bounds.svd(work)


def compare_ranges(table: Comparison, name: str, sizes: list[int], printed: Printed) -> None:
    work = ranges(sizes)
    svdb = rs.bounds.svd(work)
    table.agrees(f"{name} SVDB", svdb, printed.svdb)
    with threadpool_limits(
        limits=1, user_api="blas"
    ):  # it makes a hundred decompositions, which a second thread slows down
        supreme = rs.bounds.supreme_svd(work)
    table.at_least(f"{name} SVDB_U", supreme / svdb, printed.supreme)
    table.agrees(f"{name} Identity", ratio(work, "identity"), printed.identity)
    if printed is RANGES_2048:
        name_1024 = "ALLRANGE(1024) Hierarchical"
        slip = f"printed is {name_1024}, next row"
        table.beside(f"{name} Hierarchical", ratio(work, "hierarchical"), printed.hierarchical, slip)
        table.agrees(name_1024, ratio(ranges([1024]), "hierarchical"), printed.hierarchical)
    else:
        table.agrees(f"{name} Hierarchical", ratio(work, "hierarchical"), printed.hierarchical)
    table.agrees(f"{name} Wavelet", ratio(work, "wavelet"), printed.wavelet)
    optimum = rs.plan(work, COST_ONE, method="dense")
    total = optimum.ideal.total_variance
    gap = f"gap {total / optimum.certificate.lower_bound - 1:.0e}"
    table.at_most(f"{name} optimum (Eigen Design)", total / svdb, printed.eigen, gap)


def compare_predicates(table: Comparison) -> None:
    """Through the mean over the 2^1024 queries, since the total is beyond floating point."""
    name = f"ALLPREDICATE({PREDICATE_CELLS})"
    printed = PREDICATES
    queries = Predicates(PREDICATE_CELLS)
    root = np.ldexp(queries.root(), -PREDICATE_CELLS // 2)  # root' root is the mean gram
    mean = bracket(root, np.ones(PREDICATE_CELLS)).lower  # uniform weights: the singular value bound
    total, closed = total_bound(mean), corollary_bound()
    table.beside(f"{name} SVDB", total, printed.svdb, "wrong power, next rows")
    table.agrees(f"{name} SVDB, power corrected", total, "4.885e310")
    table.agrees(f"{name} SVDB, Corollary 5.1", total, f"{closed:.6e}", "its closed form")
    optimum = solve_cells(root).require(1e-6)
    between = "between 1 and our optimum, shown"
    table.agrees(f"{name} SVDB_U", optimum.upper / mean, printed.supreme, between)
    gram = queries.mean_gram()
    table.agrees(f"{name} Identity", error(np.eye(PREDICATE_CELLS), gram) / mean, printed.identity)
    tree, haar = (
        error(matrix(PREDICATE_CELLS), gram) / mean for matrix in (hierarchical_matrix, wavelet_matrix)
    )
    exchanged = "printed under the other's name"
    table.agrees(f"{name} Hierarchical", tree, printed.wavelet, exchanged)
    table.agrees(f"{name} Wavelet", haar, printed.hierarchical, exchanged)
    gap = f"gap {optimum.gap:.0e}"
    table.at_most(f"{name} optimum (Eigen Design)", optimum.upper / mean, printed.eigen, gap)


def error(strategy: Array, gram: Array) -> float:
    """Total variance `tr(gram X^+)` of a strategy scaled to cost 1."""
    cost = float((strategy * strategy).sum(axis=0).max())
    return cost * float(np.sum(inverse_gram(strategy)[0] * gram))


def total_bound(mean: float) -> Decimal:
    return Decimal(mean) * Decimal(1 << PREDICATE_CELLS)


def corollary_bound() -> Decimal:
    """`2^(n-2) / n * (n - 1 + sqrt(n + 1))^2` to 40 digits."""
    n = PREDICATE_CELLS
    with localcontext() as context:
        context.prec = 40
        return Decimal(1 << (n - 2)) / n * (n - 1 + Decimal(n + 1).sqrt()) ** 2


def main(arguments: list[str] | None = None) -> int:
    fast = only_fast(arguments, __doc__, "ALLRANGE(2048)")
    table = Comparison("SVD bound, Table 2: errors are ratios to SVDB")
    compare_ranges(table, "ALLRANGE(64,32)", [64, 32], RANGES_64_32)
    compare_ranges(table, "ALLRANGE(2 x 10)", [2] * 10, RANGES_TWOS)
    compare_predicates(table)
    if not fast:
        compare_ranges(table, "ALLRANGE(2048)", [2048], RANGES_2048)
    return table.exit_code()


if __name__ == "__main__":
    sys.exit(main())
