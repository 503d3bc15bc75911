"""Seconds to a certified optimum, and how many eigendecompositions of the same size that is.

Prefix and all ranges on 64, 256 and 1024 cells to a gap of 1e-6, on one BLAS thread: cold, and warm from the
cell weights of the same queries with weights up to 10% different. `--large` adds 4096 cells at 1e-4, on all
threads.

Fails if a gap is not reached, if prefix on 1024 cells takes more than 15 processor seconds, or if a
workload on 4096 cells takes more than ten minutes of them. Seconds depend on the machine and are indicative;
the ratio to `numpy.linalg.eigh` of the same size, measured in the same run, less so.
"""

import argparse
import sys
from functools import partial

import numpy as np
from _timing import Limits, Timed, timed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from residua.solve.cells import Solution, solve_cells
from residua.workload.intervals import Prefix, Ranges

Array = NDArray[np.float64]

SIZES = (64, 256, 1024)
GAP = 1e-6
PREFIX_SECONDS = 15.0  # of the processor, on 1024 cells, cold
LARGE, LARGE_GAP, LARGE_SECONDS = 4096, 1e-4, 600.0
LINE = "{:<10}{:>6} {:<5}{:>9}{:>9}{:>13}{:>10}{:>10}"


def one_eigh(root: Array) -> float:
    """Processor seconds of one symmetric eigendecomposition of this size, the best of a few."""
    gram = root @ root.T
    repeats = 1 if len(root) > 512 else 5
    return min(timed(partial(np.linalg.eigh, gram)).cpu for _ in range(repeats))


def neighbour(root: Array) -> Array:
    """Nearly the same queries: each row's weight is up to 10% different."""
    return np.asarray(root * np.sqrt(1 + 0.1 * np.sin(np.arange(len(root))))[:, None])


def line(name: str, how: str, run: Timed[Solution], eigh: float) -> None:
    """One row of the table."""
    solution = run.result
    cells = solution.strategy.shape[1]
    cpu, wall, ratio = f"{run.cpu:.3f}", f"{run.wall:.3f}", f"{run.cpu / eigh:.1f}"
    print(
        LINE.format(name, cells, how, cpu, wall, solution.evaluations, f"{solution.gap:.1e}", ratio),
        flush=True,
    )


def small(limits: Limits) -> None:
    """Cold and warm on one thread."""
    for family in (Prefix, Ranges):
        for cells in SIZES:
            root = family(cells).root()
            similar = neighbour(root)
            eigh = one_eigh(root)
            cold = timed(partial(solve_cells, root, GAP))
            line(family.kind, "cold", cold, eigh)
            warm = timed(partial(solve_cells, similar, GAP, cold.result.cell_weights))
            line(family.kind, "warm", warm, eigh)
            for how, run in (("cold", cold), ("warm", warm)):
                gap = run.result.gap
                limits.check(gap <= GAP, f"{family.kind} {cells} {how}: gap {gap:.1e}, not {GAP:.0e}")
            if family is Prefix and cells == 1024:
                limits.check(
                    cold.cpu <= PREFIX_SECONDS, f"prefix 1024: {cold.cpu:.1f} s, not {PREFIX_SECONDS:g} s"
                )


def large(limits: Limits) -> None:
    """Cold on all threads."""
    for family in (Prefix, Ranges):
        root = family(LARGE).root()
        run = timed(partial(solve_cells, root, LARGE_GAP))
        line(family.kind, "cold", run, one_eigh(root))
        gap = run.result.gap
        limits.check(gap <= LARGE_GAP, f"{family.kind} {LARGE}: gap {gap:.1e}, not {LARGE_GAP:.0e}")
        limits.check(
            run.cpu <= LARGE_SECONDS, f"{family.kind} {LARGE}: {run.cpu:.0f} s, not {LARGE_SECONDS:g} s"
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--large", action="store_true", help=f"{LARGE} cells too, some minutes each")
    wanted = parser.parse_args(arguments)
    limits = Limits()
    print(LINE.format("queries", "cells", "", "cpu s", "wall s", "evaluations", "gap", "cpu/eigh"))
    with threadpool_limits(limits=1, user_api="blas"):
        small(limits)
    if wanted.large:
        large(limits)
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
