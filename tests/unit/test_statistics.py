"""Derived statistics: values, errors and coverage, against the data and against simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import residua as rs
from residua.release.intervals import fieller, whole_ends
from residua.release.regression import Relates
from residua.release.statistics import UNBOUNDED, Derives, numbers_of
from residua.workload.moments import cell_numbers

SCHEMA = rs.Schema(age=rs.Integer(0, 11), sex=rs.Categorical("F", "M"), work=rs.Categorical("a", "b", "c"))
WORK = rs.marginals(SCHEMA, up_to=2) + rs.table(SCHEMA, age=rs.prefix, sex=rs.identity)
DRAW = np.random.default_rng(1)
CODES = np.stack(
    [
        np.minimum(DRAW.poisson(5, 3000), 11),
        DRAW.integers(0, 2, 3000),
        DRAW.choice(3, 3000, p=[0.7, 0.29, 0.01]),
    ],
    1,
)
COUNTS = np.zeros((12, 2, 3))
np.add.at(COUNTS, tuple(CODES.T), 1)
AGE, SEX = rs.table(SCHEMA, ["age"]), rs.table(SCHEMA, ["sex"])


@pytest.fixture(scope="module")
def plan() -> rs.Plan:
    return rs.plan(WORK, rs.zcdp("0.05"))


@pytest.fixture(scope="module")
def release(plan) -> rs.Release:
    return rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=1))


class Exact(Derives, Relates):
    """The data themselves, as if measured without noise: a release's answers without a release."""

    def __init__(self, plan: rs.Plan) -> None:
        self.plan = plan

    def values(self, work: rs.Workload) -> np.ndarray:
        found = []
        for group in work.groups():
            rows = np.ones((1, 1))
            for factor in group.factors:
                rows = np.kron(rows, factor.queries.matrix())
            kept = [at for factor in group.factors for at in factor.attributes]
            cells = COUNTS.sum(axis=tuple(at for at in range(3) if at not in kept))
            order = np.argsort(np.argsort(kept))
            found.append(
                rows @ cells.transpose(order).reshape(-1)
                if kept
                else rows @ COUNTS.sum(keepdims=True).reshape(-1)
            )
        return np.concatenate(found)

    def covariance(self, left: rs.Workload, right: rs.Workload) -> np.ndarray:
        return self.plan.covariance(left, right)


def test_shares_means_and_quantiles_without_noise_are_those_of_the_data(plan):
    exact = Exact(plan)
    by_sex = COUNTS.sum(axis=0)
    np.testing.assert_allclose(
        exact.share("work", within="sex").values, by_sex / by_sex.sum(axis=1, keepdims=True)
    )
    alone = COUNTS.sum(axis=(0, 1))
    np.testing.assert_allclose(exact.share("work").values, alone / alone.sum())
    ages = COUNTS.sum(axis=2)
    expected = (np.arange(12)[:, None] * ages).sum(axis=0) / ages.sum(axis=0)
    np.testing.assert_allclose(exact.mean("age", by="sex").values, expected)


def test_quantiles_without_noise_are_those_of_the_data(plan):
    found = Exact(plan).quantile("age", [0.1, 0.5, 0.9], by="sex")
    for sex in range(2):
        people = np.sort(CODES[CODES[:, 1] == sex, 0])
        expected = [people[math.ceil(order * len(people)) - 1] for order in (0.1, 0.5, 0.9)]
        assert found.values[sex].tolist() == expected
    assert found.names == ("sex", "quantile")
    assert found.axes[1] == ("0.1", "0.5", "0.9")
    assert (found.lower <= found.values).all()
    assert (found.values <= found.upper).all()


def test_shares_of_a_group_add_up_to_one(release):
    np.testing.assert_allclose(release.share("work", within="sex").values.sum(axis=1), 1.0)


@given(st.integers(0, 2**32 - 1))
def test_fieller_sets_hold_what_their_test_does_not_reject(seed):
    draw = np.random.default_rng(seed)
    root = draw.normal(size=(2, 2))
    (vt, c), (_, vb) = root @ root.T
    t, b, z = draw.normal(scale=5), draw.normal(scale=5), 1.96
    lower, upper, bounded = fieller(*(np.array([each]) for each in (t, b, vt, vb, c)), z)
    for r in draw.normal(scale=10, size=50):
        inside = (t - r * b) ** 2 <= z**2 * (vt - 2 * r * c + r**2 * vb)
        if bounded[0]:
            assert inside == (lower[0] <= r <= upper[0])
        else:
            assert lower[0] == -math.inf
            assert upper[0] == math.inf


def test_a_denominator_that_may_be_zero_gets_a_word_and_no_ends(plan):
    empty = rs.measure(plan, CODES[:0], ledger=None, noise=rs.simulated(seed=3))
    found = empty.share("work", within="sex")
    assert (found.notes == UNBOUNDED).all()
    assert np.isinf(found.upper).all()
    assert np.isinf(found.stddev).all()


def test_intervals_cover_as_they_say(plan):
    """Beyond 60 of 100 standard deviations of luck; the long run is in the stress tests."""
    by_sex = COUNTS.sum(axis=0)
    shares = by_sex / by_sex.sum(axis=1, keepdims=True)
    ages = COUNTS.sum(axis=2)
    means = (np.arange(12)[:, None] * ages).sum(axis=0) / ages.sum(axis=0)
    middle = Exact(plan).quantile("age", [0.5], by="sex").values
    covered = {"share": 0, "mean": 0, "quantile": 0}
    runs = 60
    for seed in range(runs):
        release = rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=seed))
        for name, found, true in (
            ("share", release.share("work", within="sex"), shares),
            ("mean", release.mean("age", by="sex"), means),
            ("quantile", release.quantile("age", [0.5], by="sex"), middle),
        ):
            covered[name] += int(((found.lower <= true) & (true <= found.upper)).sum())
    assert 0.90 <= covered["share"] / (6 * runs) <= 0.99
    assert covered["mean"] / (2 * runs) >= 0.88
    assert covered["quantile"] / (2 * runs) >= 0.88


def test_a_linear_function_has_its_exact_error(release):
    work = rs.table(SCHEMA, ["work"])
    found = release.derived(lambda t: t["w"][0] - 2 * t["w"][1], {"w": work})
    direct = rs.linear(SCHEMA, ("work",), np.array([[1.0, -2.0, 0.0]]))
    assert found.values[0] == pytest.approx(release.values(direct)[0])
    assert found.stddev[0] == pytest.approx(math.sqrt(release.plan.variances(direct)[0]), rel=1e-6)


def test_a_ratio_by_the_delta_method_agrees_with_fieller_where_the_denominator_is_large(release):
    top, bottom = rs.table(SCHEMA, ["work"]), rs.marginals(SCHEMA, ways=0)
    sets = release.ratio(top, bottom)
    plain = release.derived(lambda t: t["top"] / t["bottom"], {"top": top, "bottom": bottom})
    np.testing.assert_allclose(sets.stddev, plain.stddev, rtol=1e-5)
    np.testing.assert_allclose(sets.upper, plain.upper, rtol=0.01, atol=1e-3)


def test_differences_within_a_release_know_what_both_have_in_common(release, plan):
    work = rs.table(SCHEMA, ["work"])
    same = release.difference(work, work)
    np.testing.assert_allclose(same.values, 0, atol=1e-9)
    np.testing.assert_allclose(same.stddev, 0, atol=1e-6)
    other = rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=2))
    between = release.difference(work, other)
    np.testing.assert_allclose(between.stddev, np.sqrt(2 * plan.variances(work)))


def test_simultaneous_intervals_are_wider_and_at_most_sidaks(release):
    one = release.share("work", within="sex")
    all_ = release.share("work", within="sex", simultaneous=True)
    sidak = release.share("work", within="sex", level=0.95 ** (1 / 6))
    assert (all_.upper > one.upper).all()
    assert (all_.upper <= sidak.upper + 1e-12).all()


@given(st.floats(-50, 50), st.floats(0, 60))
def test_whole_ends_keep_every_count(lower, width):
    low, high = whole_ends(np.array([lower]), np.array([lower + width]))
    inside = [count for count in range(120) if lower <= count <= lower + width]
    assert all(low[0] <= count <= high[0] for count in inside)
    assert low[0] >= 0
    assert low[0] == round(low[0])


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda r: r.share("work", within="work"), "'work': named twice"),
        (lambda r: r.mean("work"), "its cells are no numbers; say with values="),
        (lambda r: r.mean("work", values=[1, 2]), "has 3 cells; give a finite number for each"),
        (lambda r: r.quantile("age", [1.5]), "orders of quantiles lie between 0 and 1"),
        (lambda r: r.quantile("age", 2), "orders of quantiles lie between 0 and 1"),
        (lambda r: r.ratio("age", "sex"), "a ratio is of two workloads, .* not 'age'"),
        (lambda r: r.ratio(rs.table(SCHEMA, ["age"]), rs.table(SCHEMA, ["sex"])), "12 over 2"),
        (
            lambda r: r.difference(rs.table(SCHEMA, ["age"]), rs.table(SCHEMA, ["sex"])),
            "12 answers less 2",
        ),
    ],
)
def test_what_has_no_answer_is_refused_with_the_remedy(release, ask, words):
    with pytest.raises(rs.WorkloadError, match=words):
        ask(release)


def test_a_single_order_of_quantiles_needs_no_list(release):
    one, listed = release.quantile("age", 0.5), release.quantile("age", [0.5])
    assert one.values.tolist() == listed.values.tolist()


def test_bins_count_at_their_middles_and_end_at_their_ends():
    schema = rs.Schema(pay=rs.Binned(0, 10, 30), open=rs.Binned(0, 10, above=True))
    assert numbers_of(schema, "pay").tolist() == [5, 20]
    assert cell_numbers("pay", schema["pay"], ends=True).tolist() == [10, 30]
    with pytest.raises(rs.WorkloadError, match="last bin has no end"):
        numbers_of(schema, "open")
    assert numbers_of(schema, "open", [5, 12]).tolist() == [5, 12]


def test_a_release_offers_them_all(release):
    assert release.share("work", within="sex").values.shape == (2, 3)
    assert release.share(["sex", "work"]).values.sum() == pytest.approx(1)
    assert release.mean("age").values.shape == ()
    assert release.quantile("age", by="sex").values.shape == (2, 3)
    assert release.ratio(AGE, rs.marginals(SCHEMA, ways=0)).values.shape == (12,)
    assert release.difference(AGE, AGE).values.shape == (12,)
    found = release.derived(lambda t: np.log(t["age"][5]), {"age": AGE}, level=0.9)
    assert found.level == 0.9
    frame = release.share("work", within="sex").to_pandas()
    assert list(frame.columns) == ["values", "stddev", "lower", "upper", "notes"]
    assert frame.index.names == ["sex", "work"]
    with pytest.raises(rs.WorkloadError, match="confidence level"):
        release.share("work", level=95)


def test_tables_may_have_whole_and_simultaneous_intervals(release):
    plain, whole = release.table("work"), release.table("work", whole=True)
    assert (whole.lower >= plain.lower).all()
    assert (whole.upper <= plain.upper).all()
    assert (whole.lower == np.floor(whole.lower)).all()
    assert (release.table("work", simultaneous=True).upper > plain.upper).all()
