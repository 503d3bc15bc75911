"""From data to every answer: two whole releases, with time and peak memory of each step.

All marginals on at most 3 of 50 attributes of size 10, 10,000 records (published ResidualPlanner code:
69 s to measure, 36 s to reconstruct, 5.6 GB), and, where the Adult data lies beside the checkout, its hybrid
workload of prefixes and marginals on at most 3 of 14 attributes (21 million queries).

Fails if measuring the first takes over 20 s, reconstructing every table over 3 s or the peak exceeds 3 GB; or
if the second takes over 5 minutes or 4 GB end to end. Seconds are of the processor; each case has a process.
"""

import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import residua as rs
from residua.release import Release
from residua.workload import TableRun

ADULT = Path(__file__).resolve().parents[2] / "shared" / "data"
NUMERIC = {"age", "fnlwgt", "capital-gain", "capital-loss", "hours-per-week"}
LINE = "  {:<38}{:>10.2f} s{:>10.2f} s allowed"


def peak_gigabytes() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def step(name: str, allowed: float, call: Callable[[], object]) -> tuple[object, bool]:
    """Run a step; its result, and whether it kept to its time."""
    start = time.process_time()
    result = call()
    taken = time.process_time() - start
    print(LINE.format(name, taken, allowed), flush=True)
    return result, taken <= allowed


def reconstruct_all(release: Release) -> int:
    """Answer every table; the number of answers."""
    estimator = release.plan.strategy.answerer.estimator(release.estimates)
    count = 0
    for part in release.plan.workload.parts:
        if isinstance(part, TableRun):
            count += sum(answers.size for _, answers in estimator.run(part))
        else:
            count += estimator.answers(part).size
    return count


def marginals() -> bool:
    """All marginals on at most 3 of 50 attributes of size 10."""
    print("all <= 3-way marginals, 50 attributes of size 10, 10,000 records")
    schema = rs.Schema.of_sizes([10] * 50)
    codes = np.random.default_rng(1).integers(0, 10, (10_000, 50)).astype(np.int32)
    work = rs.marginals(schema, up_to=3)
    plan, _ = step("plan", 5.0, lambda: rs.plan(work, rs.zcdp("0.1")))
    assert isinstance(plan, rs.Plan)
    noise = rs.simulated(seed=1)
    release, quick = step("measure", 20.0, lambda: rs.measure(plan, codes, ledger=None, noise=noise))
    assert isinstance(release, Release)
    count, soon = step("reconstruct every table", 3.0, lambda: reconstruct_all(release))
    peak = peak_gigabytes()
    print(f"  {count:,} answers, peak {peak:.2f} GB of 3 allowed")
    return quick and soon and peak <= 3.0


def adult() -> bool:
    """The hybrid workload on Adult, end to end."""
    if not (ADULT / "adult.csv").exists():
        print("Adult: the data is not beside the checkout; left out")
        return True
    print("Adult, <= 3-way hybrid workload, 48,842 records")
    sizes = json.loads((ADULT / "adult-domain.json").read_text())
    schema = rs.Schema(
        {
            name: rs.Integer(0, size - 1) if name in NUMERIC else rs.Categorical(*range(size))
            for name, size in sizes.items()
        }
    )
    work = rs.all_tables(schema, ways=(1, 2, 3), numeric=rs.prefix, categorical=rs.identity)
    plan, a = step("plan", 60.0, lambda: rs.plan(work, rs.zcdp("0.1")))
    assert isinstance(plan, rs.Plan)
    noise = rs.simulated(seed=1)
    release, b = step(
        "measure", 180.0, lambda: rs.measure(plan, ADULT / "adult.csv", ledger=None, noise=noise)
    )
    assert isinstance(release, Release)
    count, c = step("reconstruct every table", 60.0, lambda: reconstruct_all(release))
    peak = peak_gigabytes()
    loss = plan.rmse / plan.ideal.rmse - 1
    print(f"  {count:,} answers, peak {peak:.2f} GB of 4 allowed, integers cost {loss:.3%} in rmse")
    return a and b and c and peak <= 4.0


def main() -> int:
    """Run each case in a process of its own, so that peaks do not mix."""
    context = multiprocessing.get_context("spawn")
    kept = []
    for case in (marginals, adult):
        with context.Pool(1) as pool:
            kept.append(pool.apply(case))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
