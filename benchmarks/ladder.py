"""The ladder: every row against ourselves at an earlier commit and, indicatively, against the best peer.

    python benchmarks/ladder.py --base COMMIT [words of rows ...]

Each row runs in a fresh interpreter on one processor, from the sources of this checkout and then from those
of the commit, of which a worktree is made for the time. Seconds are of the processor, and begin where
`residua` and its room for plans are loaded (`cold start` counts the loading too). The peer's figures were
taken where `eigh` of a 1,000 x 1,000 matrix takes about 0.2 s on one thread; they are scaled by what it takes
here, beside a pass over memory that is only shown, and are indicative. So is "should", what the row is to
reach, scaled likewise.

Bytecode is written and read whatever the shell says, and short rows are the best of three runs: what is
timed is what a user has who runs something twice. The calibration is taken anew beside every row.

Fails if a row takes more than 1.3 times what it should, or has a larger error than at the commit.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from itertools import combinations
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from _fresh import _one_processor as one_processor
from _fresh import _peak as peak
from _timing import Limits, timed

import residua as rs

ROOT = Path(__file__).resolve().parents[1]
BASE = "dd20a41"  # the commit before the rows were looked at
EIGH = 0.2  # seconds of the calibration where the peer's figures were taken
SLACK, WORSE = 1.3, 1.001
PATIENCE = 900.0
REPEATS, SHORT = 3, 2.0  # runs of rows that take fewer seconds than this
LINE = "{:<46}{:>9}{:>9}{:>7}{:>9}{:>9}{:>10}{:>10}{:>7}"

Figures = tuple[float, float]
"""Processor seconds and the error, or nan where a row has none."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is timed, and the seconds of the best peer and those that it should take, if known."""

    run: Callable[[], Figures]
    peer: float | None = None
    should: float | None = None


def planned(work: Callable[[], rs.Workload], budget: Any, method: str = "auto") -> Figures:
    """Seconds of making and planning a workload, and the plan's error before rounding to integers."""
    plan = rs.plan
    began = time.process_time()
    found = plan(work(), budget, method=method)
    return time.process_time() - began, found.ideal.rmse


def product(*sizes: int) -> rs.Workload:
    schema = rs.Schema.of_sizes(sizes)
    return rs.table(schema, dict.fromkeys(schema.names, rs.prefix))


def four_tables() -> rs.Workload:
    """Prefixes on each of two attributes of 32 cells, alone and within every cell of the other."""
    schema = rs.Schema.of_sizes([32, 32])
    a, b = schema.names
    asked = ({a: rs.prefix}, {b: rs.prefix}, {a: rs.prefix, b: rs.identity}, {a: rs.identity, b: rs.prefix})
    return reduce(add, (rs.table(schema, each) for each in asked))


def random_pairs() -> rs.Workload:
    """300 random queries, each of 30 of 100 cells, on every pair of 10 attributes of 10 cells."""
    schema, draw = rs.Schema.of_sizes([10] * 10), np.random.default_rng(1)
    asked = [
        rs.linear(schema, pair, (draw.random((300, 100)) < 0.3).astype(float))
        for pair in combinations(schema.names, 2)
    ]
    return reduce(add, asked)


def pairs(family: Any) -> rs.Workload:
    return rs.all_tables(rs.Schema.of_sizes([10] * 10), 2, family)


def marginals(count: int, size: int = 10) -> rs.Workload:
    return rs.marginals(rs.Schema.of_sizes([size] * count), up_to=3)


def three_way() -> rs.Workload:
    return rs.marginals(rs.Schema.of_sizes([2] * 108), ways=3)


def ranges(cells: int) -> rs.Workload:
    return rs.table(rs.Schema(x=rs.Integer(0, cells - 1)), x=rs.ranges)


def explicit() -> rs.Workload:
    rows = np.random.default_rng(1).random((5_000, 2_000)) < 0.3
    return rs.linear(rs.Schema(x=rs.Integer(0, 1_999)), ["x"], rows.astype(float))


def uneven_pairs() -> rs.Workload:
    return rs.all_tables(rs.Schema.of_sizes(range(10, 32, 3)), 2, rs.affine)


def release_of(work: rs.Workload) -> tuple[float, rs.Release]:
    """Seconds of measuring 10,000 random records, and the simulated release."""
    plan, sizes = rs.plan(work, rs.zcdp(1)), work.schema.sizes
    codes = np.random.default_rng(1).integers(0, sizes, (10_000, len(sizes))).astype(np.int32)
    began = time.process_time()
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(1))
    return time.process_time() - began, release


def measured(work: Callable[[], rs.Workload], values: bool) -> Figures:
    """Seconds of measuring, and of all values where they are wanted."""
    seconds, release = release_of(work())
    began = time.process_time()
    if values:
        release.values()
    return seconds + time.process_time() - began, release.plan.ideal.rmse


def answers() -> Figures:
    """Seconds of all answers of 2.3 million rows with labels, text and intervals, as Arrow batches."""
    release = release_of(marginals(25))[1]
    began = time.process_time()
    rows = sum(batch.num_rows for batch in release.answer_batches())
    return time.process_time() - began, float(rows)


def cold_start() -> Figures:
    """Seconds of a new interpreter that imports residua and plans two small tables."""
    program = (
        "import residua as rs; rs.plan(rs.marginals(rs.Schema.of_sizes([3, 4, 5]), up_to=2), rs.zcdp(1))"
    )
    before = os.times()
    subprocess.run([sys.executable, "-c", program], check=True)
    after = os.times()
    begun = after.children_user + after.children_system - before.children_user - before.children_system
    return begun, float("nan")


PURE, COST = rs.pure_dp(1), rs.privacy_cost(1)
ROWS: dict[str, Row] = {
    "Laplace, prefix 256": Row(partial(planned, partial(product, 256), PURE), 0.36, 0.25),
    "Laplace, prefix 1024": Row(partial(planned, partial(product, 1024), PURE), 14, 4),
    "Laplace, prefix 64 x 64": Row(partial(planned, partial(product, 64, 64), PURE), 0.03, 0.15),
    "Laplace, prefix 8 x 8": Row(partial(planned, partial(product, 8, 8), PURE)),
    "Laplace, prefix 12 x 12": Row(partial(planned, partial(product, 12, 12), PURE)),
    "four tables on 32 x 32, hdmm": Row(partial(planned, four_tables, COST, "hdmm"), 0.14, 0.3),
    "four tables on 32 x 32, auto": Row(partial(planned, four_tables, COST), None, 0.7),
    "random queries on all pairs, auto": Row(partial(planned, random_pairs, COST), 1.24, 0.5),
    "affine on all pairs, auto": Row(partial(planned, partial(pairs, rs.affine), COST), 4.2, 0.4),
    "abs on all pairs, auto": Row(partial(planned, partial(pairs, rs.abs_diff), COST), 3.4, 0.4),
    "prefix 256, certified": Row(partial(planned, partial(product, 256), COST), 1.03, 0.2),
    "marginals of 20, selection": Row(partial(planned, partial(marginals, 20), COST), 0.08, 0.06),
    "marginals of 50, selection": Row(partial(planned, partial(marginals, 50), COST), 1.2, 0.1),
    "marginals of 100, selection": Row(partial(planned, partial(marginals, 100), COST), 10.4, 0.4),
    "12 binary attributes, hdmm-marginals": Row(
        partial(planned, partial(marginals, 12, 2), COST, "hdmm-marginals"), 7.1, 0.3
    ),
    "all answers with labels, 2.3 million": Row(answers, 6, 1.5),
    "measure and values, 50 attributes": Row(partial(measured, partial(marginals, 50), True), 102, 3),
    "cold start and a small plan": Row(cold_start, None, 0.35),
    "prefix 1024": Row(partial(planned, partial(product, 1024), COST)),
    "prefix 1025": Row(partial(planned, partial(product, 1025), COST)),
    "ranges 1000": Row(partial(planned, partial(ranges, 1_000), COST), None, 40),
    "ranges 2000": Row(partial(planned, partial(ranges, 2_000), COST), None, 40),
    "5,000 x 2,000 explicit queries": Row(partial(planned, explicit, COST), None, 30),
    "affine on pairs of 10, 13, .., 31": Row(partial(planned, uneven_pairs, COST), None, 10),
    "measure 204,156 3-way marginals": Row(partial(measured, three_way, False), None, 60),
}


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """A checkout of a commit, for as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "-q", "--detach", path, commit], check=True)
        try:
            yield path
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", path], check=True)


def fresh(name: str, tree: Path) -> tuple[float, float, float] | None:
    """Seconds, error and megabytes of a row with the sources of a tree; None where it did not end well."""
    command = [sys.executable, __file__, "--row", name]
    places = os.pathsep.join([str(tree / "src"), str(ROOT / "benchmarks")])
    others = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    found: list[tuple[float, float, float]] = []
    while len(found) < REPEATS and (not found or found[0][0] < SHORT):
        with one_processor():
            try:
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                    env={**others, "PYTHONPATH": places, "OPENBLAS_NUM_THREADS": "1"},
                    check=True,
                )
            except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
                print(f"{name}: {str(error.stderr or error)[-300:]}", file=sys.stderr)
                return None
        seconds, rmse, megabytes = json.loads(done.stdout.splitlines()[-1])
        found.append((seconds, float("nan") if rmse is None else rmse, megabytes))
    return min(found, key=lambda each: each[0])


def calibration() -> tuple[float, float]:
    """Seconds of `eigh` of 1,000 x 1,000 numbers, and of adding up 40 MB ten times."""
    square = np.random.default_rng(0).random((1_000, 1_000))
    plenty = np.ones(5_000_000)
    found = (
        (timed(partial(np.linalg.eigh, square + square.T)), timed(lambda: [plenty.sum() for _ in range(10)]))
        for _ in range(3)
    )
    values, sums = zip(*found, strict=True)
    return min(each.cpu for each in values), min(each.cpu for each in sums)


def compare(name: str, row: Row, base: Path | None, limits: Limits) -> None:
    """Print one row of the ladder."""
    before_it = calibration()[0]
    ours = fresh(name, ROOT)
    scale = (before_it + calibration()[0]) / 2 / EIGH
    if ours is None:
        limits.check(False, f"{name}: no figures")
        return
    seconds, error, megabytes = ours
    before = None if base is None else fresh(name, base)
    cells = [
        f"{seconds:.2f}",
        "" if before is None else f"{before[0]:.2f}",
        "" if before is None else f"{seconds / before[0]:.2f}",
        "" if row.peer is None else f"{row.peer * scale:.2f}",
        "" if row.should is None else f"{row.should * scale:.2f}",
        f"{error:.4f}",
        "" if before is None else f"{before[1]:.4f}",
        f"{megabytes:.0f}",
    ]
    print(LINE.format(name, *cells), flush=True)
    if row.should is not None:
        limits.check(seconds <= SLACK * scale * row.should, f"{name}: {seconds:.2f} s")
    if before is not None:
        limits.check(not error > WORSE * before[1], f"{name}: error {error:.4f}, before {before[1]:.4f}")


def main() -> int:
    if sys.argv[1:2] == ["--row"]:
        seconds, error = ROWS[sys.argv[2]].run()
        print(json.dumps([seconds, None if np.isnan(error) else error, peak()]))
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--base", metavar="COMMIT", default=BASE, help="the commit to compare with; '' for none"
    )
    parser.add_argument("words", nargs="*", help="only rows whose names have all of these words")
    chosen = parser.parse_args()
    eigh, memory = calibration()
    print(f"eigh of 1,000 x 1,000: {eigh:.3f} s; 400 MB added up: {memory:.3f} s; peers by {eigh / EIGH:.2f}")
    print(LINE.format("", "now", "before", "ratio", "peer ~", "should ~", "error", "before", "MB"))
    limits = Limits()
    rows = {name: row for name, row in ROWS.items() if all(word in name for word in chosen.words)}
    if not chosen.base:
        for name, row in rows.items():
            compare(name, row, None, limits)
        return limits.exit_code()
    with worktree(chosen.base) as base:
        for name, row in rows.items():
            compare(name, row, base, limits)
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())
