"""Root mean square error of one-dimensional workloads under pure differential privacy with epsilon 1.

HDMM, Table 4. Identity, H2, Privelet, HB and SVDB must agree to the last printed digit, and OPT_0 must not be
above the printed figure by more than 1%. H2, Privelet and HB on permuted ranges are compared with the mean
over all permutations, since the paper's is not printed. GreedyH is set beside ours, which weighs whole levels
of the tree; LRM, which the paper runs up to 1024 cells, is not reproduced.

Takes about twenty minutes on two cores (37 beside other work), nearly all of it on 4096 cells; `--fast`
leaves out 1024 and 4096.
"""

import math
import sys

import numpy as np
from _comparison import Comparison, only_fast
from _products import ALLOWED
from hdmm_table5 import PERMUTATION_SPREAD, WORKLOADS, mean_over_permutations
from numpy.typing import NDArray

from residua.linalg.grams import inverse_gram
from residua.methods.baselines import at_cost_one, hb_matrix, hierarchical_matrix, tree_for, wavelet_matrix
from residua.methods.hdmm.p_identity import opt0
from residua.solve.cells import bracket
from residua.workload.queries import Queries

Array = NDArray[np.float64]

SIZES = (64, 256, 1024, 4096)
SLOW = 1024
FIXED = ("Identity", "H2", "Privelet", "HB")

# FIXED, then GreedyH, OPT_0 and SVDB
PRINTED = {
    ("All Range", 64): ("6.63", "11.28", "10.11", "6.63", "6.34", "5.55", "3.22"),
    ("All Range", 256): ("13.11", "16.27", "14.87", "8.90", "9.72", "8.07", "4.07"),
    ("All Range", 1024): ("26.15", "21.83", "20.26", "12.82", "14.70", "11.08", "4.94"),
    ("All Range", 4096): ("52.27", "27.90", "26.18", "16.19", "22.21", "14.38", "5.82"),
    ("prefix", 64): ("8.06", "9.42", "9.37", "8.06", "6.04", "5.32", "2.89"),
    ("prefix", 256): ("16.03", "13.16", "13.09", "8.97", "9.13", "7.35", "3.50"),
    ("prefix", 1024): ("32.02", "17.29", "17.20", "12.87", "14.32", "9.58", "4.11"),
    ("prefix", 4096): ("64.01", "21.77", "21.67", "14.91", "22.40", "12.20", "4.74"),
    ("width32", 64): ("8.00", "12.02", "11.09", "8.00", "7.32", "5.88", "2.75"),
    ("width32", 256): ("8.00", "15.50", "13.57", "7.41", "8.00", "6.34", "3.26"),
    ("width32", 1024): ("8.00", "18.98", "16.56", "9.50", "8.00", "6.41", "3.36"),
    ("width32", 4096): ("8.00", "22.45", "19.58", "10.96", "8.00", "6.46", "3.38"),
    ("permuted", 64): ("6.63", "25.02", "18.97", "6.63", "6.83", "5.55", "3.22"),
    ("permuted", 256): ("13.11", "66.25", "49.09", "18.48", "13.02", "8.06", "4.07"),
    ("permuted", 1024): ("26.15", "157.50", "117.06", "37.07", "23.94", "11.08", "4.94"),
    ("permuted", 4096): ("52.27", "374.29", "277.42", "107.83", "45.77", "14.37", "5.82"),
}


def rmse(total: float, queries: Queries) -> float:
    """Root mean square error at epsilon 1, from a total variance at noise variance 1 and sensitivity 1."""
    return math.sqrt(2 * total / queries.count)


def covariance(matrix: Array) -> Array:
    """Inverse of the gram of a strategy scaled to sensitivity 1, shape (cells, cells)."""
    return inverse_gram(at_cost_one(matrix, "laplace"))[0]


def compare_size(table: Comparison, cells: int) -> None:
    """All rows of the paper's table for one domain size."""
    trees = (np.eye(cells), hierarchical_matrix(cells), wavelet_matrix(cells), hb_matrix(cells))
    fixed = [covariance(matrix) for matrix in trees]
    for name, family in WORKLOADS.items():
        queries = family(cells)
        compare_row(table, name, queries, queries.gram(), [float(queries.trace(each)) for each in fixed])
        if name == "All Range":
            order = np.random.default_rng(1).permutation(cells)
            totals = [mean_over_permutations(queries, each) for each in fixed]
            compare_row(table, "permuted", queries, queries.gram()[np.ix_(order, order)], totals)


def compare_row(table: Comparison, name: str, queries: Queries, gram: Array, totals: list[float]) -> None:
    """One workload: fixed strategies, the searched ones and the bound."""
    cells = queries.cells
    *fixed, greedy, opt, svdb = PRINTED[name, cells]
    for method, total, theirs in zip(FIXED, totals, fixed, strict=True):
        row, ours = f"{name} {cells} {method}", rmse(total, queries)
        if name == "permuted" and method != "Identity":
            table.close(row, ours, float(theirs), PERMUTATION_SPREAD, "mean over permutations; theirs is one")
        else:
            table.agrees(row, ours, theirs)
    if cells < SLOW:
        tree = float(np.sum(gram * covariance(tree_for(gram, "laplace"))))
        table.beside(f"{name} {cells} GreedyH", rmse(tree, queries), greedy, "ours weighs whole levels")
    table.nearly(f"{name} {cells} OPT_0", rmse(opt0(gram, "laplace").value, queries), opt, ALLOWED)
    bound = bracket(queries.root(), np.ones(cells)).lower
    table.agrees(f"{name} {cells} SVDB", rmse(bound, queries), svdb)


def main(arguments: list[str] | None = None) -> int:
    fast = only_fast(arguments, __doc__, "1024 and 4096 cells")
    table = Comparison("HDMM, Table 4: root mean square error at epsilon 1")
    for cells in SIZES:
        if cells < SLOW or not fast:
            compare_size(table, cells)
    return table.exit_code()


if __name__ == "__main__":
    sys.exit(main())
