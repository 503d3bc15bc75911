"""Changes between periods: exact covariance of what they share, and a word where they may be noise."""

import numpy as np
import pytest

import residua as rs
from residua.errors import WorkloadError

SCHEMA = rs.Schema(month=rs.Integer(1, 4), sex=rs.Categorical("F", "M"))
COUNTS = np.array([[50, 40], [90, 41], [91, 80], [40, 82]])


def release(seed=1, counts=COUNTS, schema=SCHEMA):
    plan = rs.plan(rs.table(schema, month=rs.prefix, sex=rs.identity), rs.zcdp("0.5"))
    codes = np.repeat(np.indices(counts.shape).reshape(2, -1).T, counts.reshape(-1), axis=0)
    return rs.measure(plan, codes.astype(np.int32), ledger=None, noise=rs.simulated(seed=seed))


@pytest.mark.parametrize("lag", [1, 3])
def test_changes_within_a_release_have_the_covariance_of_a_dense_twin(lag):
    found = release().change("sex", over="month", lag=lag)
    work = rs.table(SCHEMA, ["month", "sex"])
    cover = release().covariance(work, work)
    steps = np.kron(np.eye(4)[lag:] - np.eye(4)[:-lag], np.eye(2))
    assert found.axes == (("1", "2", "3", "4")[lag:], ("F", "M"))
    assert found.values.reshape(-1) == pytest.approx(steps @ release().values(work))
    assert found.stddev.reshape(-1) ** 2 == pytest.approx(np.diagonal(steps @ cover @ steps.T))
    independent = np.sqrt(np.diagonal(abs(steps) @ np.diag(np.diagonal(cover)) @ abs(steps).T))
    assert not np.allclose(found.stddev.reshape(-1), independent)


def test_changes_that_may_be_noise_are_marked():
    found = release().change(over="month")
    clear = (found.lower > 0) | (found.upper < 0)
    assert np.array_equal(found.notes == "may be noise", ~clear)
    quiet = release(counts=np.full((4, 2), 50)).change("sex", over="month", level=0.9999)
    assert (quiet.notes == "may be noise").all()
    assert (release().change(over="month", simultaneous=True).lower <= found.lower).all()


def test_growth_is_the_ratio_less_one():
    source = release()
    found = source.change("sex", over="month", growth=True)
    steps = (np.eye(4)[1:], np.eye(4)[:-1])
    now, before = (rs.linear(SCHEMA, ("month", "sex"), np.kron(rows, np.eye(2))) for rows in steps)
    wanted = source.ratio(now, before)
    for name in ("values", "lower", "upper"):
        assert getattr(found, name).reshape(-1) == pytest.approx(getattr(wanted, name) - 1)
    assert found.stddev.reshape(-1) == pytest.approx(wanted.stddev)


def test_two_releases_are_compared_as_independent():
    first, second = release(1), release(2, COUNTS + 100)
    found = second.change("sex", since=first)
    work = rs.table(SCHEMA, ["sex"])
    assert found.values == pytest.approx(second.values(work) - first.values(work))
    variances = first.plan.variances(work) + second.plan.variances(work)
    assert found.stddev == pytest.approx(np.sqrt(variances))
    assert (found.notes == "").all()
    rate = second.change("sex", since=first, growth=True)
    assert rate.values == pytest.approx(second.values(work) / first.values(work) - 1)
    assert second.change(since=first).values.shape == (1,)


def test_releases_of_other_periods_may_have_another_attribute_of_time():
    later = rs.Schema(month=rs.Integer(5, 8), sex=rs.Categorical("F", "M"))
    assert release(3, schema=later).change("sex", since=release()).values.shape == (2,)
    with pytest.raises(WorkloadError, match="different attributes"):
        release(3, schema=later).change("month", since=release())


def test_releases_that_share_noise_are_not_compared(tmp_path):
    plan = rs.plan(rs.table(SCHEMA, ["month", "sex"]), rs.zcdp("0.1"), over="month")
    stream = rs.Stream.create(tmp_path / "a.stream", plan, over="month", ledger=None)
    for month in ("1", "2"):
        stream.measure(int(month), {"month": [int(month)] * 9, "sex": ["F"] * 9}, noise=rs.simulated(seed=1))
    now, before = stream.release(), stream.release("1")
    with pytest.raises(WorkloadError, match="share their noise"):
        now.change("sex", since=before)
    assert now.change("sex", over="month").values.shape == (1, 2)
    rs.Ledger.create(tmp_path / "l.db", rs.zcdp(1), dataset="d")
    once = rs.measure(plan, np.zeros((5, 2), np.int32), ledger=tmp_path / "l.db")
    once.save(tmp_path / "a.release")
    twice = rs.Release.load(tmp_path / "a.release")
    both = rs.combine(once, rs.measure(plan, np.zeros((5, 2), np.int32), ledger=tmp_path / "l.db"))
    for other in (once, twice, both):
        with pytest.raises(WorkloadError, match="share their noise"):
            once.difference(rs.table(SCHEMA, ["sex"]), other)


def test_what_is_to_be_compared_has_to_be_said():
    source = release()
    for options in ({}, {"over": "month", "since": release(2)}):
        with pytest.raises(WorkloadError, match="give over="):
            source.change("sex", **options)
    for lag in (0, 4, 1.0):
        with pytest.raises(WorkloadError, match="lag is a number of periods"):
            source.change("sex", over="month", lag=lag)
    with pytest.raises(WorkloadError, match="named twice"):
        source.change("month", over="month")
