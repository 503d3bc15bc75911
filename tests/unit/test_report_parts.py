"""Parts of reports against brute-force twins: shares of the privacy, what a test can find out, wording."""

import math
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import residua as rs
from residua.privacy import Privacy
from residua.report.budgets import MOST_SHARES, energy_by_subset, shares_of
from residua.report.charts import is_readable, themed, tidy
from residua.report.gather import asked_words, room_for
from residua.report.grid import grid_of
from residua.report.words import decimals_for, detection_limit, figure, gap_text, percent, percent_above


@pytest.mark.parametrize("sizes", [(3,), (2, 4), (3, 2, 2)])
def test_energies_are_those_of_the_projections(sizes):
    """Claim V-002: the squares of a matrix are shared out by the projections on centred queries."""
    matrix = np.random.default_rng(1).normal(size=(5, math.prod(sizes)))
    found = dict(energy_by_subset(matrix, sizes))
    for kept in product((False, True), repeat=len(sizes)):
        projection = np.ones((1, 1))
        for keep, size in zip(kept, sizes, strict=True):
            mean = np.full((size, size), 1 / size)
            projection = np.kron(projection, np.eye(size) - mean if keep else mean)
        subset = tuple(axis for axis, keep in enumerate(kept) if keep)
        expected = np.sum((matrix @ projection) ** 2) / np.sum(matrix**2)
        assert found[subset] == pytest.approx(expected)
    assert sum(found.values()) == pytest.approx(1)


@pytest.mark.parametrize("method", ["dense", "querysmasher", "residualplanner", "identity"])
def test_shares_add_up_to_the_whole(method):
    schema = rs.Schema.of_sizes([3, 2, 4])
    plan = rs.plan(rs.marginals(schema, up_to=2), rs.zcdp(1), method=method)
    shares = shares_of(plan)
    assert sum(share.fraction for share in shares) == pytest.approx(1)
    assert all(share.fraction > 0 for share in shares)


def test_shares_of_blocks_are_their_exact_costs():
    schema = rs.Schema.of_sizes([3, 2, 4])
    plan = rs.plan(rs.marginals(schema, up_to=2), rs.zcdp(1), method="residualplanner")
    held = {share.words: share.fraction for share in shares_of(plan)}
    for layer in plan.strategy.layers:
        for subset, cost in zip(layer.subsets.tolist(), layer.costs.tolist(), strict=True):
            words = " x ".join(schema.names[at] for at in subset) or "the number of records"
            assert held[words] == pytest.approx(cost / float(plan.privacy.cost))


def test_many_shares_are_grouped_and_still_add_up():
    plan = rs.plan(rs.marginals(rs.Schema.of_sizes([2] * 12), up_to=2), rs.zcdp(1))
    shares = shares_of(plan)
    assert len(shares) <= MOST_SHARES + 3
    assert sum(share.fraction for share in shares) == pytest.approx(1)
    assert sum(share.blocks for share in shares) == 1 + 12 + 66


@pytest.mark.parametrize("cost", ["0.01", "0.5", "4"])
def test_no_threshold_test_finds_more_than_the_limit(cost):
    """Claim V-001, Gaussian noise: the best test is a threshold, and it finds exactly the limit."""
    privacy, alarms = Privacy.from_cost(cost), 0.05
    threshold = NormalDist().inv_cdf(1 - alarms)
    finds = 1 - NormalDist(mu=math.sqrt(float(privacy.cost))).cdf(threshold)
    assert detection_limit(privacy, alarms) == pytest.approx(finds)


@given(epsilon=st.floats(0.01, 6), alarms=st.floats(0.001, 0.5))
def test_randomised_response_reaches_the_limit_of_pure_dp(epsilon, alarms):
    """Claim V-001, pure DP: two answers with odds e^epsilon, and a test that mixes them, reach the limit."""
    privacy = Privacy.from_pure_epsilon(f"{epsilon:.6f}")
    yes = 1 / (1 + math.exp(float(privacy.pure_epsilon)))  # chance to say yes though it is no
    if alarms <= yes:
        finds = alarms / yes * (1 - yes)
    else:
        finds = (1 - yes) + (alarms - yes) / (1 - yes) * yes
    assert detection_limit(privacy, alarms) == pytest.approx(finds)


def test_what_zcdp_alone_proves_is_a_weaker_limit():
    assert (
        detection_limit(Privacy.from_cost("0.1"), 0.05) < detection_limit(Privacy.from_rho("0.05"), 0.05) < 1
    )


@given(
    counts=st.lists(st.integers(1, 50), min_size=1, max_size=20),
    most=st.integers(1, 300),
)
def test_no_more_numbers_are_listed_than_there_is_room_for(counts, most):
    room = room_for(counts, most)
    listed = sum(min(count, room) for count in counts)
    assert listed <= max(most, len(counts))
    if listed < sum(counts):  # one more for each would be too many
        assert sum(min(count, room + 1) for count in counts) > most


@given(st.floats(0, 1))
def test_a_probability_is_never_understated(fraction):
    shown = float(percent_above(fraction).removesuffix("%")) / 100
    assert fraction * (1 - 1e-9) <= shown <= fraction + 0.00101


@given(st.floats(1e-12, 10))
def test_a_gap_is_never_understated(gap):
    shown = float(gap_text(gap).removesuffix("%")) / 100
    assert gap * (1 - 1e-6) <= shown <= 2.01 * gap + 1e-4 * (gap >= 1e-3)


@given(st.floats(1e-3, 1e9))
def test_a_figure_has_four_digits(number):
    shown = float(figure(number).replace(",", ""))
    assert shown == pytest.approx(number, rel=5.1e-4)


def test_small_and_unknown_figures_are_shown():
    assert [figure(0.0), figure(1e-7), figure(math.nan), percent(0.5), percent(1.0)] == [
        "0",
        "1e-07",
        "-",
        "50.0%",
        "100%",
    ]
    assert decimals_for(math.inf) == 1


SCHEMA = rs.Schema(
    age=rs.Integer(0, 9),
    sex=rs.Categorical("F", "M"),
    place=rs.Hierarchy(("state", "town"), [("A", "x"), ("A", "y"), ("B", "z")]),
)


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (rs.table(SCHEMA), "the number of records"),
        (rs.table(SCHEMA, age=rs.prefix, sex=rs.identity), "age up to each value; each sex"),
        (rs.table(SCHEMA, place=rs.level("state")), "each state of place"),
        (rs.table(SCHEMA, age=rs.buckets(5)), "2 groups of age"),
        (rs.table(SCHEMA, age=rs.width(3)), "8 counts by age"),
        (rs.table(SCHEMA, age=rs.total, sex=rs.identity), "each sex"),
        (rs.linear(SCHEMA, ("age", "sex"), np.ones((1, 20))), "1 count by age and sex"),
    ],
)
def test_what_a_table_asks_is_said_without_names_of_families(work, words):
    (group,) = work.groups()
    assert asked_words(group, SCHEMA) == words


def test_a_layout_has_a_place_for_every_number():
    (group,) = rs.table(SCHEMA, ["sex", "age"]).groups()
    grid = grid_of(group, SCHEMA)
    assert grid.rows == tuple((label,) for label in SCHEMA["age"].labels())
    assert grid.columns == (("F",), ("M",))
    for (line, column), place in np.ndenumerate(grid.places):
        words = f"sex = {grid.columns[column][0]} and age = {grid.rows[line][0]}"
        assert group.describe(int(place), SCHEMA) == words


@pytest.mark.parametrize(
    ("work", "sums"),
    [
        (rs.table(SCHEMA, ["sex", "age"]), (True, True, True)),
        (rs.table(SCHEMA, {"age": rs.prefix, "sex": rs.identity}), (True, False, False)),
        (rs.table(SCHEMA, {"age": rs.buckets(5), "place": rs.level("state")}), (True, True, True)),
        (rs.table(SCHEMA, age=rs.ranges), (False, False, False)),
        (rs.table(SCHEMA, ["age"]), (False, True, False)),
    ],
)
def test_sums_stand_beside_parts_that_add_up(work, sums):
    (group,) = work.groups()
    grid = grid_of(group, SCHEMA)
    assert tuple(each is not None for each in (grid.beside, grid.below, grid.corner)) == sums


def test_a_picture_that_nobody_could_read_is_not_drawn():
    wide = rs.Schema.of_sizes([50, 9, 8])
    for names in (["a0"], ["a1", "a2"], []):
        (group,) = rs.table(wide, names).groups()
        assert not is_readable(grid_of(group, wide))


def test_words_of_a_picture_that_look_like_parts_of_a_tag_stay_as_they_are():
    words = 'a role="x" "#1c2128" x="1.2345" id="clip"'
    svg = f'<svg width="9"><text role="y" fill="#1c2128" x="1.2345">{words}</text></svg>'
    drawn = themed(tidy(svg), "name", 'a "label"\x07')
    assert f">{words}</text>" in drawn
    assert '<text fill="var(--ink)" x="1.23">' in drawn
    assert 'aria-label="a &quot;label&quot;\\x07"' in drawn
