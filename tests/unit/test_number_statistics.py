"""Means, variances, correlations and regressions of numbers, against what records say."""

import numpy as np
import pytest

import residua as rs
from residua.release.regression import Relates

SCHEMA = rs.Schema(
    sex=rs.Categorical("F", "M"),
    income=rs.Number(0, 1000, step=10, degree=2, missing=True),
    age=rs.Integer(0, 9),
    hours=rs.Number(0, 60, step=1, degree=2, bins=[20, 40]),
)
X = [rs.moment(0), rs.sum, rs.moment(2)]
WORK = (
    rs.table(SCHEMA, sex=rs.identity, income=X)
    + rs.table(SCHEMA, sex=rs.identity, income=[rs.moment(0), rs.sum], age=[rs.total, rs.sum])
    + rs.table(SCHEMA, sex=rs.identity, income=[rs.moment(0), rs.sum], hours=[rs.total, rs.sum])
    + rs.table(SCHEMA, sex=rs.identity, income=rs.moment(0), age=[rs.sum, rs.moment(2)])
    + rs.table(SCHEMA, sex=rs.identity, income=rs.moment(0), hours=[rs.sum, rs.moment(2)])
    + rs.table(SCHEMA, sex=rs.identity, income=rs.moment(0), hours=rs.sum, age=rs.sum)
)


def people(records=5000, seed=0):
    chance = np.random.default_rng(seed)
    age, hours = chance.integers(0, 10, records), chance.integers(0, 61, records)
    income = np.clip(np.rint((40 * age + 5 * hours + chance.normal(200, 80, records)) / 10) * 10, 0, 1000)
    income[chance.random(records) < 0.1] = np.nan
    return {"sex": chance.choice(["F", "M"], records), "income": income, "age": age, "hours": hours}


@pytest.fixture(scope="module")
def plan():
    return rs.plan(WORK, rs.zcdp(10**6))


@pytest.fixture(scope="module")
def release(plan):
    return rs.measure(plan, people(), ledger=None, noise=rs.simulated(seed=1))


def rows(by):
    data = people()
    known = ~np.isnan(data["income"])
    for label in ("F", "M") if by else (None,):
        mine = known & ((data["sex"] == label) if by else True)
        yield {name: data[name][mine] for name in ("income", "age", "hours")}


@pytest.mark.parametrize("by", [[], ["sex"]], ids=["all", "by sex"])
def test_statistics_are_those_of_the_records_that_have_the_numbers(release, by):
    groups = list(rows(by))
    shape = (2,) if by else ()
    found = release.mean("income", by=by)
    assert found.values.shape == shape
    assert found.values.reshape(-1) == pytest.approx([each["income"].mean() for each in groups], rel=1e-3)
    found = release.variance("income", by=by)
    assert found.values.reshape(-1) == pytest.approx([each["income"].var() for each in groups], rel=1e-3)
    found = release.covariance_of("income", "age", by=by)
    wanted = [np.cov(each["income"], each["age"], bias=True)[0, 1] for each in groups]
    assert found.values.reshape(-1) == pytest.approx(wanted, rel=1e-3)
    found = release.correlation("income", "hours", by=by)
    wanted = [np.corrcoef(each["income"], each["hours"])[0, 1] for each in groups]
    assert found.values.reshape(-1) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("by", [[], ["sex"]], ids=["all", "by sex"])
def test_a_regression_is_that_of_the_records(release, by):
    found = release.regression("income", on=["age", "hours"], by=by)
    assert found.axes[-1] == ("intercept", "age", "hours")
    wanted = []
    for each in rows(by):
        columns = np.stack([np.ones(len(each["age"])), each["age"], each["hours"]], axis=1)
        wanted += np.linalg.lstsq(columns, each["income"], rcond=None)[0].tolist()
    assert found.values.reshape(-1) == pytest.approx(wanted, rel=1e-3)
    assert (found.stddev > 0).all()
    assert (found.lower < found.values).all()
    assert (found.values < found.upper).all()


class Remembered(Relates):
    """Answers of one simulated release after the other, with covariances that are worked out once."""

    def __init__(self, plan, data):
        self.plan, self.data, self.known = plan, data, {}

    def measure(self, seed):
        self.release = rs.measure(self.plan, self.data, ledger=None, noise=rs.simulated(seed=seed))
        return self

    def values(self, work):
        return self.release.values(work)

    def covariance(self, left, right):
        key = tuple(group.factors for work in (left, right) for group in work.groups())
        if key not in self.known:
            self.known[key] = self.plan.covariance(left, right)
        return self.known[key]


def test_errors_are_those_of_many_releases():
    """Standard deviations by the delta method against 100 simulated releases; and coverage."""
    plan, data = rs.plan(WORK, rs.zcdp(1)), people()
    source = Remembered(plan, data)
    means, slopes = [], []
    for seed in range(100):
        found = source.measure(seed)
        means.append(found.mean("income", by="sex"))
        slopes.append(found.regression("income", on="age", by="sex"))
    for figures in (means, slopes):
        spread = np.std([each.values for each in figures], axis=0)
        assert spread == pytest.approx(figures[0].stddev, rel=0.3)
    truth = [each["income"].mean() for each in rows(["sex"])]
    inside = [(each.lower <= truth) & (truth <= each.upper) for each in means]
    assert 0.88 <= np.mean(inside) <= 1


def test_a_group_without_records_has_a_mean_without_ends(plan):
    """Fieller's set has no end where the count may be zero, and the note says so."""
    data = {name: values[:0] for name, values in people().items()}
    found = rs.measure(rs.plan(WORK, rs.zcdp("0.01")), data, ledger=None, noise=rs.simulated(seed=3)).mean(
        "income", by="sex"
    )
    assert np.isinf(found.upper).any()
    assert "not clearly above zero" in found.notes.tolist()[int(np.argmax(np.isinf(found.upper)))]


def test_what_was_not_planned_is_refused_with_its_name(release):
    with pytest.raises(rs.NotInSpan, match="add the table to the workload"):
        release.regression("hours", on=["income"], by="age")
    with pytest.raises(rs.WorkloadError, match="on one number at least"):
        release.regression("income", on=[])
    with pytest.raises(rs.WorkloadError, match="named twice"):
        release.regression("income", on=["income"])


def test_numbers_with_bins_are_counted_by_their_bins():
    work = rs.table(SCHEMA, ["sex", "hours"])
    release = rs.measure(rs.plan(work, rs.zcdp(10**6)), people(), ledger=None, noise=rs.simulated(seed=1))
    found = release.table("hours", "sex")
    assert found.axes[0] == ("[0, 20)", "[20, 40)", "40 and above")
    hours, sex = people()["hours"], people()["sex"]
    assert found.values[1, 0] == pytest.approx(((hours >= 20) & (hours < 40) & (sex == "F")).sum(), abs=1)
    assert release.share("sex", within="hours").values.sum(axis=1) == pytest.approx([1, 1, 1])


def test_crosstabs_quantiles_and_means_go_by_bins():
    work = rs.table(SCHEMA, ["age", "hours"]) + rs.table(SCHEMA, hours=rs.identity, age=rs.sum)
    release = rs.measure(rs.plan(work, rs.zcdp(10**6)), people(), ledger=None, noise=rs.simulated(seed=1))
    hours, age = people()["hours"], people()["age"]
    bins = [hours < 20, (hours >= 20) & (hours < 40), hours >= 40]
    found = release.crosstab(rows=["age"], columns=["hours"], margins=True)
    assert found.to_pandas().shape == (11, 4)
    assert release.mean("age", by="hours").values == pytest.approx([age[b].mean() for b in bins], rel=1e-3)
    assert release.quantile("hours", [0.2, 0.5, 0.9]).values.tolist() == [20, 40, 60]
    with pytest.raises(rs.WorkloadError, match=r"give it bins"):
        release.quantile("income")


def test_whole_tables_leave_sums_alone():
    work = rs.table(SCHEMA, sex=rs.identity, income=[rs.total, rs.sum]) + rs.table(SCHEMA, ["age", "sex"])
    release = rs.measure(rs.plan(work, rs.zcdp(1)), people(), ledger=None, noise=rs.simulated(seed=1))
    near, whole = (found.values() for found in (release.nonnegative(), release.rounded()))
    assert whole[:4] == pytest.approx(near[:4])
    assert np.array_equal(whole[4:], np.rint(whole[4:]))
