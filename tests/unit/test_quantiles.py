"""Quantiles within bins, of numbers and of columns with gaps, in Python and in SQL."""

import numpy as np
import pytest

import residua as rs

EDGES = [0, 10, 30, 60, 100]
SCHEMA = rs.Schema(
    sex=rs.Categorical("F", "M"),
    pay=rs.Number(0, 100, step=1, bins=EDGES[1:-1], missing=True),
    size=rs.Binned(*EDGES),
    age=rs.Integer(0, 9, outside="other"),
)
WORK = sum(rs.table(SCHEMA, ["sex", name]) for name in ("pay", "size", "age"))
ORDERS = [0.1, 0.5, 0.9]


def people(records=4000, seed=0):
    chance = np.random.default_rng(seed)
    age = chance.integers(0, 10, records).astype(float)
    age[chance.random(records) < 0.2] = np.nan
    pay = np.clip(chance.gamma(2, 15, records), 0, 99.4).round()
    size = pay.copy()
    pay[chance.random(records) < 0.1] = np.nan
    return {"sex": chance.choice(["F", "M"], records), "pay": pay, "size": size, "age": age}


def release(rho, seed=1, data=None):
    return rs.measure(
        rs.plan(WORK, rs.zcdp(rho)), data or people(), ledger=None, noise=rs.simulated(seed=seed)
    )


@pytest.fixture(scope="module")
def exact():
    return release(10**8)


def spread_evenly(values, order):
    counts, edges = np.histogram(values[~np.isnan(values)], EDGES)
    return np.interp(order * counts.sum(), np.append(0, np.cumsum(counts)), edges)


@pytest.mark.parametrize("name", ["pay", "size"])
def test_quantiles_within_bins_are_those_of_records_spread_evenly(exact, name):
    data = people()
    wanted = [[spread_evenly(data[name][data["sex"] == sex], q) for q in ORDERS] for sex in "FM"]
    assert exact.quantile(name, ORDERS, by="sex", interpolate=True).values == pytest.approx(
        np.array(wanted), abs=0.05
    )
    stepped = exact.quantile(name, ORDERS, by="sex").values
    assert set(stepped.ravel()) <= set(EDGES)
    assert (stepped >= np.array(wanted) - 0.05).all()


@pytest.mark.parametrize(
    ("asked", "interpolate"),
    [
        ("MEDIAN({})", True),
        ("QUANTILE_CONT({}, 0.5)", True),
        ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {})", True),
        ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {} DESC)", True),
        ("QUANTILE_DISC({}, 0.5)", False),
    ],
)
@pytest.mark.parametrize("name", ["pay", "size", "age"])
def test_sql_quantiles_are_those_of_the_release(asked, interpolate, name):
    source = release("0.5")
    rows = source.sql(f"SELECT sex, {asked.format(name)} AS q FROM t GROUP BY sex").to_pylist()
    found = source.quantile(name, [0.5], by="sex", interpolate=interpolate)
    for key, wanted in (("value", found.values), ("lower", found.lower), ("upper", found.upper)):
        assert [row[key] for row in rows] == pytest.approx(wanted[:, 0])


def test_interpolated_intervals_hold_the_quantile():
    data, plan = people(300), rs.plan(WORK, rs.zcdp("0.05"))
    truth = np.array([[spread_evenly(data["pay"][data["sex"] == sex], q) for q in ORDERS] for sex in "FM"])
    runs = [rs.measure(plan, data, ledger=None, noise=rs.simulated(seed=seed)) for seed in range(150)]
    found = [run.quantile("pay", ORDERS, by="sex", interpolate=True) for run in runs]
    held = np.mean([(each.lower <= truth) & (truth <= each.upper) for each in found])
    assert held >= 0.93


def test_records_without_a_value_have_no_part_in_means_and_quantiles(exact):
    age = people()["age"]
    known = age[~np.isnan(age)]
    assert exact.mean("age").values == pytest.approx(known.mean(), rel=1e-4)
    assert exact.quantile("age", [0.5]).values[0] == np.sort(known)[(len(known) - 1) // 2]


def test_cells_that_count_as_given_numbers_have_nothing_between_them(exact):
    with pytest.raises(rs.WorkloadError, match="nothing between them"):
        exact.quantile("size", [0.5], values=[1, 2, 3, 4], interpolate=True)
