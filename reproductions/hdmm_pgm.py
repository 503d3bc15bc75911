"""HDMM+PGM on Adult: errors of a graphical model's answers and of its rows, against the unbiased answers.

McKenna, Miklau, Hay and Machanavajjhala, HDMM, appendix C, feed measurements of a strategy to a graphical
model and prefer its answers where bias can be tolerated; no figures are printed there. Here three two-way
workloads of Adult at rho = 0.1: a star (every attribute with income), all pairs of eight attributes, and all
91 pairs, whose exact model does not fit any memory and is replaced by a mixture of products. The mean
absolute error of the model's answers must not be above that of the unbiased answers. That of 48,842 rows is
printed beside it and not judged: drawing rows adds an error of its own, which on all pairs of eight
attributes makes them worse than the unbiased answers.

Needs the extra `synth`. Takes some minutes; `--fast` does the star only. The folder with the data may be
given as an argument.
"""

import sys
from importlib.util import find_spec
from itertools import combinations

import numpy as np
from _adult import adult, folder_given, true_counts
from _comparison import Comparison
from numpy.typing import NDArray

import residua as rs

ROWS = 48_842
RHO = "0.1"
CLIQUE = (
    "workclass",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "income>50K",
)


def star(schema: rs.Schema) -> rs.Workload:
    """Every attribute with income."""
    return _tables(schema, [(name, "income>50K") for name in schema.names if name != "income>50K"])


def clique(schema: rs.Schema) -> rs.Workload:
    """All pairs of eight attributes."""
    return _tables(schema, list(combinations(CLIQUE, 2)))


def _tables(schema: rs.Schema, pairs: list[tuple[str, str]]) -> rs.Workload:
    first, *others = (rs.table(schema, list(pair)) for pair in pairs)
    for each in others:
        first = first + each
    return first


def compare(
    table: Comparison, name: str, work: rs.Workload, records: NDArray[np.int64], oracle: str, iterations: int
) -> None:
    """Errors of one workload: non-negative tables, the model and its rows, against the unbiased answers."""
    truth = np.concatenate(true_counts(records, work))
    plan = rs.plan(work, rs.zcdp(RHO))
    release = rs.measure(plan, records, ledger=None, noise=rs.simulated(seed=1))
    found = release.synthetic(ROWS, oracle=oracle, iterations=iterations, replicates=0)

    def error(values: NDArray[np.float64]) -> float:
        return float(np.abs(values - truth).mean())

    unbiased = f"{error(release.values()):.4f}"
    table.at_most(f"{name}: non-negative tables", error(release.nonnegative().values()), unbiased)
    table.at_most(f"{name}: the model's answers", error(found.model.values()), unbiased)
    drawn = float(np.abs(found.counts.values() - found.model.values()).mean())
    reason = f"drawing rows moved answers by {drawn:.3f} on average"
    table.beside(f"{name}: {ROWS:,} rows", error(found.counts.values()), unbiased, reason)


def main(arguments: list[str]) -> int:
    fast = "--fast" in arguments
    folder = folder_given([each for each in arguments if each != "--fast"])
    if folder is None:
        return 0
    if find_spec("mbi") is None:
        print("the package mbi is not installed: left out (run it where the extra `synth` is)")
        return 0
    schema, records = adult(folder)
    table = Comparison("HDMM+PGM on Adult: mean absolute error, theirs the unbiased answers'")
    compare(table, "star, 13 tables", star(schema), records, "exact", 500)
    if not fast:
        compare(table, "clique, 28 tables", clique(schema), records, "exact", 500)
        compare(table, "all 91 tables, mixture", rs.marginals(schema, ways=2), records, "approximate", 1000)
    return table.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
