"""Non-negative tables of Adult against the unbiased ones, and whole tables that add up.

All 91 two-way marginals at rho = 0.1, averaged over 10 releases. The mean absolute error of the non-negative
tables must be at least 25% below that of the unbiased ones over all cells, and in no table more than 5% above
it; shared margins must agree to 1e-6, and whole tables must add up exactly. A release must be made
non-negative in less than 60 seconds.

Takes about a minute. The folder with the data may be given as an argument.
"""

import sys
import time
from collections.abc import Sequence

import numpy as np
from _adult import adult, folder_given, true_counts
from _comparison import Comparison
from numpy.typing import NDArray

import residua as rs

RELEASES = 10
RHO = "0.1"

Array = NDArray[np.float64]


def table_errors(work: rs.Workload, truth: Sequence[Array], values: Array) -> Array:
    """Sum of absolute errors of each table."""
    edges = np.cumsum([len(each) for each in truth])[:-1]
    return np.array(
        [np.abs(ours - true).sum() for ours, true in zip(np.split(values, edges), truth, strict=True)]
    )


def compare(schema: rs.Schema, records: NDArray[np.int64], work: rs.Workload, releases: int) -> Comparison:
    """The figures of one workload, printed as they are known."""
    truth = true_counts(records, work)
    plan = rs.plan(work, rs.zcdp(RHO))
    plain = np.zeros(len(truth))
    cut, whole = np.zeros(len(truth)), np.zeros(len(truth))
    apart = slowest = uneven = estimated = 0.0
    for seed in range(releases):
        release = rs.measure(plan, records, ledger=None, noise=rs.simulated(seed=seed))
        started = time.perf_counter()
        found = release.nonnegative()
        slowest = max(slowest, time.perf_counter() - started)
        rounded = release.rounded()
        plain += table_errors(work, truth, release.values()) / releases
        cut += table_errors(work, truth, found.values()) / releases
        whole += table_errors(work, truth, rounded.values()) / releases
        apart, uneven = max(apart, found.tables.disagreement()), max(uneven, rounded.tables.disagreement())
        if seed == 0:
            actual = float(np.sqrt(np.mean((found.values() - np.concatenate(truth)) ** 2)))
            estimated = found.rmse
    cells = sum(len(each) for each in truth)
    table = Comparison(f"{len(truth)} tables of {len(records):,} records at rho = {RHO}, {releases} releases")
    table.at_most(
        "mean absolute error, non-negative",
        cut.sum() / cells,
        f"{0.75 * plain.sum() / cells:.4f}",
        f"theirs: 0.75 x the unbiased {plain.sum() / cells:.4f}",
    )
    table.at_most("mean absolute error, whole", whole.sum() / cells, f"{0.75 * plain.sum() / cells:.4f}")
    table.at_most("worst table, non-negative to unbiased", float((cut / plain).max()), "1.05")
    table.at_most("margins disagree by", apart, "0.000001")
    table.at_most("whole margins disagree by", uneven, "0.0")
    table.at_most("seconds to make all non-negative", slowest, "60.0")
    table.beside("rmse of one release, by simulation", estimated, f"{actual:.3f}", "theirs: the actual one")
    return table


def main(arguments: list[str]) -> int:
    folder = folder_given(arguments)
    if folder is None:
        return 0
    schema, records = adult(folder)
    return compare(schema, records, rs.marginals(schema, ways=2), RELEASES).exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
