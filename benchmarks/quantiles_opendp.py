"""Deciles of an age distribution by 1, 10 and 100 groups: rank error of ours and of OpenDP's quantiles.

Both spend rho = 0.01 on 100,000 people. OpenDP is asked the way its users ask it: one private quantile for
each decile of each group, a ninth of the budget each (groups share no people, so they do not add up). Ours is
one plan of cumulative counts by group, whose quantiles are read off. A rank error is how far the part of
people up to the answer is from the part that was asked for. Fails unless ours is lower by 10 and 100 groups.
"""

import sys
from typing import Any

import numpy as np
from _timing import Limits
from numpy.typing import NDArray

import residua as rs

Ages = NDArray[np.int64]

RHO = 0.01
PEOPLE = 100_000
CELLS = 100
ORDERS = tuple(at / 10 for at in range(1, 10))
RUNS = {1: 40, 10: 8, 100: 2}


def main() -> int:
    limits = Limits()
    print(f"mean rank error of {len(ORDERS)} deciles, {PEOPLE:,} people, rho = {RHO}")
    for groups, runs in RUNS.items():
        people = _people(groups)
        ours = np.mean([_rank_errors(people, groups, _ours(people, groups, seed)) for seed in range(runs)])
        theirs = np.mean([_rank_errors(people, groups, _opendp(people, groups)) for _ in range(runs)])
        ratio = f"ratio {theirs / ours:.2f}" if ours else "ours exact"
        print(f"{groups:>4} groups: ours {ours:.5f}, OpenDP {theirs:.5f}, {ratio}")
        limits.check(groups == 1 or ours < theirs, f"OpenDP is the better one by {groups} groups")
    return limits.exit_code()


def _people(groups: int) -> tuple[Ages, Ages]:
    """The group and the age of each person; groups differ in size and in age."""
    draw = np.random.default_rng(1)
    group = np.floor(groups * draw.random(PEOPLE) ** 1.5).astype(np.int64)
    ages = np.clip(draw.gamma(4.0 + 3.0 * group / groups, 8.0), 0, CELLS - 1).astype(np.int64)
    return group, ages


def _rank_errors(people: tuple[Ages, Ages], groups: int, found: NDArray[np.float64]) -> float:
    """Mean distance between the order asked and the nearest part of people who are at or below the answer."""
    errors = []
    for at in range(groups):
        ages = np.sort(people[1][people[0] == at])
        below, upto = (np.searchsorted(ages, found[at], side=side) / len(ages) for side in ("left", "right"))
        orders = np.array(ORDERS)
        errors.append(np.maximum(np.maximum(below - orders, orders - upto), 0.0))
    return float(np.mean(errors))


def _ours(people: tuple[Ages, Ages], groups: int, seed: int) -> NDArray[np.float64]:
    schema = rs.Schema(group=rs.Integer(0, groups - 1), age=rs.Integer(0, CELLS - 1))
    plan = rs.plan(rs.table(schema, group=rs.identity, age=rs.prefix), rs.zcdp(RHO))
    release = rs.measure(plan, np.stack(people, 1), ledger=None, noise=rs.simulated(seed=seed))
    return np.concatenate(
        [
            release.quantile("age", [order], by="group").values
            if groups * CELLS <= 4_000
            else _by_parts(release, order, groups)
            for order in ORDERS
        ],
        axis=1,
    )


def _by_parts(release: rs.Release, order: float, groups: int) -> NDArray[np.float64]:
    """Quantiles of many groups: by SQL, which lists them without the covariance of all."""
    text = f'SELECT "group", QUANTILE_DISC(age, {order}) AS q FROM t GROUP BY "group" ORDER BY "group"'
    return np.array(release.sql(text)["value"].to_pylist())[:, None]


def _opendp(people: tuple[Ages, Ages], groups: int) -> NDArray[np.float64]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    divergence, share = dp.zero_concentrated_divergence(), RHO / len(ORDERS)

    def made(order: float, scale: float) -> Any:
        return dp.m.make_private_quantile(*space, divergence, list(range(CELLS)), order, scale)

    # The cost of a quantile falls with the square of its scale.
    scales = [1.00001 * float(made(order, 1.0).map(1) / share) ** 0.5 for order in ORDERS]
    asked = [made(order, scale) for order, scale in zip(ORDERS, scales, strict=True)]
    assert all(each.map(1) <= share for each in asked)
    ages = [people[1][people[0] == at].tolist() for at in range(groups)]
    return np.array([[each(own) for each in asked] for own in ages], dtype=np.float64)


if __name__ == "__main__":
    sys.exit(main())
