"""Seconds of the search for a p-Identity strategy (OPT_0 for Laplace noise), and what one evaluation costs.

Prefix counts on 1024 cells, on one BLAS thread; `--large` adds 4096 cells, on all threads. The last column,
processor time over that of one evaluation of the objective and its gradient, hardly depends on the machine.

Fails if an error is more than 1% above the published one, if 1024 cells take more than 10 processor seconds
(the published code: 28), or if 4096 cells take more than 5 minutes of them for each thread.
"""

import argparse
import math
import sys
from functools import partial

import numpy as np
from _timing import Limits, timed

from residua.methods.hdmm.p_identity import CELLS_PER_ROW, evaluated, opt0
from residua.workload.intervals import Prefix

PUBLISHED = {64: 5.32, 256: 7.35, 1024: 9.58, 4096: 12.20}  # root mean square error at epsilon 1
SECONDS = {64: 10.0, 256: 10.0, 1024: 10.0, 4096: 600.0}
SLACK = 1.01
LINE = "{:>6}{:>10}{:>11}{:>10}{:>10}{:>14}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--large", action="store_true", help="add 4096 cells")
    parser.add_argument("--cells", type=int, nargs="*", default=[1024], help="sizes of the domain")
    chosen = parser.parse_args(arguments)
    limits = Limits()
    print(LINE.format("cells", "rmse", "published", "wall s", "cpu s", "evaluations"))
    for cells in [*chosen.cells, *([4096] if chosen.large else [])]:
        gram = Prefix(cells).gram()
        found = timed(partial(opt0, gram, "laplace"))
        rmse = math.sqrt(2 * found.result.value / cells)
        weights = np.random.default_rng(0).random((max(1, cells // CELLS_PER_ROW), cells))
        once = timed(partial(evaluated, gram, weights)).cpu
        row = (cells, f"{rmse:.3f}", PUBLISHED[cells], f"{found.wall:.1f}", f"{found.cpu:.1f}")
        print(LINE.format(*row, f"{found.cpu / max(once, 1e-6):.0f}"), flush=True)
        limits.check(rmse <= SLACK * PUBLISHED[cells], f"{cells} cells: rmse {rmse:.3f}")
        limits.check(found.cpu <= SECONDS[cells], f"{cells} cells took {found.cpu:.0f} s")
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
