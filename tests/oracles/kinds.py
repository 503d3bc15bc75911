"""Small plans of every kind of structure, law, unit and objective, for tests that try something on each."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import residua as rs
from residua.methods import Draft, registry
from residua.methods.effort import Account
from residua.methods.instalments import _uncentred, triangular, with_time

SMALL = rs.Schema.of_sizes([3, 4, 2])
PREFIXES = rs.all_tables(SMALL, (1, 2), rs.prefix)
MARGINALS = rs.marginals(SMALL, up_to=2)
JOINT = rs.table(SMALL, {("a0", "a1"): rs.affine}) + rs.table(SMALL, ["a2"])
CONDITIONS = rs.sql(
    SMALL,
    "SELECT COUNT(*) FROM t WHERE a0 >= 1 OR a1 = 0;"
    "SELECT a2, COUNT(*) FROM t WHERE NOT (a0 = 1 AND a1 = 1) GROUP BY a2",
)
BESIDE = rs.sql(SMALL, "SELECT COUNT(*) FROM t WHERE a0 >= 1 OR a1 = 0 OR a2 = 0") + rs.marginals(
    SMALL, up_to=1
)
GAUSS, LAPLACE = rs.zcdp(1), rs.pure_dp(1)
REPLACED = rs.Unit(neighbours="replace_one")
PLACES = rs.Schema(
    place=rs.Hierarchy(("state", "county"), [(f"s{at // 3}", f"c{at}") for at in range(6)]),
    sex=rs.Categorical("F", "M"),
)
SUMS = rs.Schema(income=rs.Number(0, 200, step=50), sex=rs.Categorical("F", "M"))


def beside_time(work: rs.Workload, at: int) -> rs.Plan:
    """The plan for instalments over an attribute that there is where all joint cells are too many."""
    name = f"blocks beside attribute {at}"

    def draft(own: rs.Workload, gap: float, progress: object) -> Draft:
        return triangular(_uncentred(with_time(own, at), at, gap, None, Account()), at)

    with pytest.MonkeyPatch.context() as patch:  # other tests try all methods there are
        patch.setitem(registry._METHODS["gaussian"], name, draft)
        return rs.plan(work, GAUSS, method=name)


PLANS: dict[str, Callable[[], rs.Plan]] = {
    "blocks": lambda: rs.plan(PREFIXES, GAUSS, method="querysmasher"),
    "best weights": lambda: rs.plan(PREFIXES, GAUSS, method="smasher"),
    "marginals": lambda: rs.plan(MARGINALS, rs.approx_dp(1, "1e-6"), method="residualplanner"),
    "fourier": lambda: rs.plan(PREFIXES, GAUSS, method="fourier"),
    "dense": lambda: rs.plan(PREFIXES, GAUSS, method="dense"),
    "nested": lambda: rs.plan(MARGINALS, GAUSS, method="hdmm-marginals"),
    "union": lambda: rs.plan(JOINT, GAUSS, method="hdmm-union"),
    "product": lambda: rs.plan(PREFIXES, GAUSS, method="hdmm-kron"),
    "instalments": lambda: rs.plan(PREFIXES, GAUSS, over="a1"),
    "time beside blocks": lambda: beside_time(MARGINALS, 1),
    "classes": lambda: rs.plan(CONDITIONS, GAUSS),
    "classes beside cells": lambda: rs.plan(BESIDE, GAUSS, method="querysmasher"),
    "targets": lambda: rs.plan(PREFIXES, targets=rs.stddev(3)),
    "largest variance": lambda: rs.plan(PREFIXES, GAUSS, objective="max_variance"),
    "persons": lambda: rs.plan(MARGINALS, GAUSS, unit=rs.Unit(max_records=3)),
    "replaced": lambda: rs.plan(PREFIXES, GAUSS, unit=REPLACED),
    "laplace": lambda: rs.plan(PREFIXES, LAPLACE),
    "laplace classes": lambda: rs.plan(CONDITIONS, LAPLACE),
    "places": lambda: rs.plan(rs.levels(PLACES, "place", ["sex"]), GAUSS, method="places"),
    "numbers": lambda: rs.plan(rs.table(SUMS, sex=rs.identity, income=[rs.total, rs.sum]), GAUSS),
    "weighted": lambda: rs.plan(3 * rs.table(SMALL, ["a0"]) + rs.table(SMALL, a1=rs.ranges), GAUSS),
}


@cache
def planned(name: str) -> rs.Plan:
    """The plan of this name."""
    return PLANS[name]()


@cache
def released(name: str) -> rs.Release:
    """A simulated release of the plan of this name."""
    plan = planned(name)
    ends = [attribute.codes for attribute in plan.schema.attributes]
    codes = np.array([[at % end for end in ends] for at in range(60)], dtype=np.int32)
    return rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))


@cache
def so_far() -> rs.Release:
    """A simulated release of three instalments of four."""
    plan = planned("instalments")
    with TemporaryDirectory() as folder:
        stream = rs.Stream.create(Path(folder, "a.stream"), plan, over="a1", ledger=None)
        for number, period in enumerate(stream.periods[:3]):
            codes = np.array([[at % 3, number, at % 2] for at in range(20)], dtype=np.int32)
            stream.measure(period, codes, noise=rs.simulated(seed=number))
        return stream.release()
