"""Count, sum and mean of income by 20 groups and at 3 levels of a hierarchy: our error against peers'.

All get the same rho = 0.1, add or remove one record, the same people and the same bounds. OpenDP is asked
the way its users ask it: every vector of counts and of sums is noised with a share of the budget, equal ones
first, then the best ones. Tumult Analytics runs where it is installed, in an environment of its own whose
Python is given as RESIDUA_TUMULT_PYTHON: a count and a sum at every level, with equal shares. A mean is a sum
over a count. Then 10,000 releases are simulated: intervals of sums and means must cover 94% to 96%.

Fails if ours is not lower than every peer's in every figure, or if a coverage is outside.
"""

import json
import math
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from _timing import Limits
from numpy.typing import NDArray

import residua as rs
from residua.release.regression import Relates

Array = NDArray[np.float64]
Tables = list[tuple[Array, Array]]
"""For each level the counts and the sums of its groups."""

RHO = "0.1"
HIGH = 200_000
PEOPLE = 20_000
RUNS = 300
COVERED = 10_000
PLACES = [(f"s{at // 12}", f"c{at // 4}", f"t{at}") for at in range(24)]
SCHEMA = rs.Schema(
    group=rs.Integer(0, 19),
    place=rs.Hierarchy(("state", "county", "tract"), PLACES),
    income=rs.Number(0, HIGH, step=100),
)
BOTH = [rs.total, rs.sum]
CASES = {
    "20 groups": rs.table(SCHEMA, group=rs.identity, income=BOTH),
    "3 levels": rs.levels(SCHEMA, "place", {"income": BOTH}),
}


def main() -> int:
    limits = Limits()
    people = _people()
    for case, work in CASES.items():
        truth = _truth(case, people)
        ours = _ours(work, people, truth)
        print(f"{case}: Residua, RMSE in {RUNS} releases: {_told(ours)}")
        for words, best in (("equal shares", False), ("best shares", True)):
            _compare(
                limits, f"OpenDP, {words}", _figures([_opendp(truth, best) for _ in range(RUNS)], truth), ours
            )
        found = _tumult(case, people, truth)
        if found is not None:
            _compare(limits, "Tumult", found, ours)
    for words, held in _coverage(people).items():
        print(f"coverage of 95% intervals of {words}, {COVERED:,} releases: {held:.2%}")
        limits.check(0.94 <= held <= 0.96, f"the coverage of {words} is {held:.2%}")
    return limits.exit_code()


def _compare(limits: Limits, who: str, theirs: dict[str, float], ours: dict[str, float]) -> None:
    ratios = {name: theirs[name] / ours[name] for name in ours}
    print(f"  {who}: {_told(theirs)}; ratios " + ", ".join(f"{value:.2f}" for value in ratios.values()))
    for name, ratio in ratios.items():
        limits.check(ratio > 1, f"{who}: the ratio of {name} is {ratio:.3f}")


def _told(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,.1f}" for name, value in figures.items())


def _people() -> dict[str, Any]:
    chance = np.random.default_rng(0)
    places = chance.integers(0, len(PLACES), PEOPLE)
    income = np.clip(chance.lognormal(10.3, 0.8, PEOPLE), 0, HIGH)
    names = np.array([path[-1] for path in PLACES], dtype=object)[places]
    return {"group": chance.integers(0, 20, PEOPLE), "place": names, "income": income, "leaf": places}


def _truth(case: str, people: dict[str, Any]) -> Tables:
    leaf = people["leaf"]
    keys = [people["group"]] if case == "20 groups" else [leaf // 12, leaf // 4, leaf]
    income = np.asarray(people["income"], dtype=np.float64)
    pairs = ((np.bincount(key), np.bincount(key, income)) for key in keys)
    return [(np.asarray(count, np.float64), np.asarray(total, np.float64)) for count, total in pairs]


def _figures(runs: list[Tables], truth: Tables) -> dict[str, float]:
    """Root mean square errors of counts, sums and means over all runs, groups and levels."""
    errors: dict[str, list[Array]] = {"count": [], "sum": [], "mean": []}
    for run in runs:
        for (count, total), (true_count, true_total) in zip(run, truth, strict=True):
            errors["count"].append(count - true_count)
            errors["sum"].append(total - true_total)
            errors["mean"].append(total / count - true_total / true_count)
    return {name: math.sqrt(float(np.mean(np.concatenate(each) ** 2))) for name, each in errors.items()}


def _ours(work: rs.Workload, people: dict[str, Any], truth: Tables) -> dict[str, float]:
    plan = rs.plan(work, rs.zcdp(RHO))
    sizes = [len(count) for count, _ in truth]
    runs = []
    for seed in range(RUNS):
        values = rs.measure(plan, people, ledger=None, noise=rs.simulated(seed=seed)).values()
        parts = np.split(values, np.cumsum([2 * size for size in sizes])[:-1])
        runs.append([(part.reshape(-1, 2)[:, 0], part.reshape(-1, 2)[:, 1]) for part in parts])
    return _figures(runs, truth)


def _opendp(truth: Tables, best: bool) -> Tables:
    """One release: noise on every vector; the best shares go by the square root of what each adds up to."""
    weights = [math.sqrt(len(count)) if best else 1.0 for count, _ in truth]
    found = []
    for (count, total), weight in zip(truth, weights, strict=True):
        rho = float(RHO) * weight / (2 * sum(weights))
        noisy = [count + _noise(len(count), 1, rho), total + _noise(len(count), HIGH, rho)]
        found.append((noisy[0], noisy[1]))
    return found


def _noise(size: int, bound: int, rho: float) -> Array:
    return np.array(_gaussian(bound, rho)([0] * size), dtype=np.float64)


@cache
def _gaussian(bound: int, rho: float) -> Any:
    """OpenDP's discrete Gaussian noise, checked by its own privacy map."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    made: Any = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=bound * math.sqrt(1 / (2 * rho)))
    if not made.map(float(bound)) <= rho * (1 + 1e-9):
        raise ValueError("OpenDP's map says that this noise costs more than its share")
    return made


def _tumult(case: str, people: dict[str, Any], truth: Tables) -> dict[str, float] | None:
    """Tumult's figures, from a process of its own; None where it is not installed."""
    python = os.environ.get("RESIDUA_TUMULT_PYTHON")
    if python is None:
        print("  Tumult: not installed (RESIDUA_TUMULT_PYTHON is not set)")
        return None
    leaf = people["leaf"]
    keys = [people["group"]] if case == "20 groups" else [leaf // 12, leaf // 4, leaf]
    task = {
        "keys": [key.tolist() for key in keys],
        "sizes": [len(count) for count, _ in truth],
        "income": people["income"].tolist(),
        "high": HIGH,
        "rho": float(RHO),
        "runs": 3,
    }
    script = Path(__file__).with_name("_tumult.py")
    asked = json.dumps(task)
    with TemporaryDirectory() as folder:  # Spark writes where it is started
        done = subprocess.run(
            [python, script], input=asked, capture_output=True, text=True, check=True, cwd=folder
        )
    runs = json.loads(done.stdout.splitlines()[-1])
    return _figures([[(np.array(c), np.array(s)) for c, s in run] for run in runs], truth)


class _Remembered(Relates):
    """Answers of one simulated release after the other, with covariances that are worked out once."""

    def __init__(self, plan: rs.Plan) -> None:
        self.plan, self.known = plan, dict[Any, Array]()
        self.release: rs.Release

    def values(self, work: rs.Workload) -> Array:
        return self.release.values(work)

    def covariance(self, left: rs.Workload, right: rs.Workload) -> Array:
        key = tuple(group.factors for work in (left, right) for group in work.groups())
        if key not in self.known:
            self.known[key] = self.plan.covariance(left, right)
        return self.known[key]


def _coverage(people: dict[str, Any]) -> dict[str, float]:
    """Which part of the intervals of sums and of means hold the truth; of groups of some 50 people."""
    few = {name: values[:1000] for name, values in people.items()}
    plan = rs.plan(CASES["20 groups"], rs.zcdp(RHO))
    source = _Remembered(plan)
    rounded = np.rint(few["income"] / 100) * 100
    count, total = np.bincount(few["group"]), np.bincount(few["group"], rounded)
    sums = rs.table(SCHEMA, group=rs.identity, income=rs.sum)
    margin = 1.959964 * np.sqrt(plan.variances(sums))
    held = {"sums": 0, "means": 0}
    for seed in range(COVERED):
        source.release = rs.measure(plan, few, ledger=None, noise=rs.simulated(seed=seed))
        held["sums"] += int((np.abs(source.values(sums) - total) <= margin).sum())
        found = source.mean("income", by="group")
        held["means"] += int(((found.lower <= total / count) & (total / count <= found.upper)).sum())
    return {words: number / (COVERED * len(count)) for words, number in held.items()}


if __name__ == "__main__":
    sys.exit(main())
