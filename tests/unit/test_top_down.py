"""Tables of places without negative numbers, from the nation down: whole, adding up, keeping facts."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places_twin import hierarchy

import residua as rs
from residua.errors import DataError, Infeasible, WorkloadError
from residua.postprocess.margins import rounded_among
from residua.postprocess.top_down import rounded_tables_of, shared_among

WORKS = {
    "same tables": lambda s: rs.table(s, ["age", "sex"]) + rs.levels(s, "place", ["age", "sex"]),
    "fewer and fewer": lambda s: (
        rs.table(s, ["place.l0", "age", "sex"]) + rs.table(s, ["place.l1", "sex"]) + rs.table(s, ["place"])
    ),
    "apart": lambda s: (
        rs.table(s, ["age"]) + rs.table(s, ["place", "age"]) + rs.table(s, ["place.l0", "sex"])
    ),
    "counts": lambda s: rs.table(s, []) + rs.levels(s, "place"),
    "by vectors": lambda s: (
        rs.table(s, {"place.l0": rs.identity, "age": rs.prefix}) + rs.table(s, ["place", "sex"])
    ),
}


def measured(
    seed: int, which: str, records: int = 300, method: str = "places"
) -> tuple[rs.Release, np.ndarray]:
    draw = np.random.default_rng(seed)
    schema = rs.Schema(
        age=rs.Integer(0, 3), place=hierarchy(draw, 3, 1, 4), sex=rs.Categorical("F", "M", "X")
    )
    plan = rs.plan(WORKS[which](schema), rs.zcdp("0.1"), method=method)
    codes = np.column_stack([(draw.random(records) ** 2 * size).astype(int) for size in schema.sizes])
    return rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=seed)), codes


def quietly(release: rs.Release, made: str, facts: list[rs.Fact] | None = None) -> rs.Processed:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rs.PublicFactWarning)
        return getattr(release, made)(facts or [], replicates=0)


def check_sums(release: rs.Release, found: rs.Processed, near: float) -> None:
    """Levels add up to those above them, tables by other attributes to their margins."""
    place = release.plan.schema["place"]
    assert found.tables.disagreement() <= near
    for group in release.plan.workload.groups():
        names = [release.plan.schema.names[at] for at in group.attributes if at != 1]
        deepest = {"place.l0": 0, "place.l1": 1, "place": 2}
        name = next((each for each in deepest if f"{each} " in f"{group.name} "), None)
        levels = ["place.l0", "place.l1", "place"][: 1 + deepest[name]] if name else []
        tables = [found.table(*names).values[None], *(found.table(each, *names).values for each in levels)]
        owners = [np.zeros(place.size, dtype=int), *(place.level_of(each) for each in place.levels)]
        for depth, (above, below) in enumerate(pairwise(tables)):
            parts = np.zeros_like(above)
            first = [int(np.flatnonzero(owners[depth + 1] == node)[0]) for node in range(len(below))]
            np.add.at(parts, owners[depth][first], below)
            assert np.abs(parts - above).max() <= near
        for own, level in zip(tables[1:], levels, strict=True):
            totals = found.table(level).values
            assert np.abs(own.reshape(len(own), -1).sum(axis=1) - totals).max() <= near


@pytest.mark.parametrize("which", WORKS)
@pytest.mark.parametrize("seed", [1, 2])
def test_whole_tables_add_up_along_the_tree_and_over_the_attributes(seed, which):
    release, _ = measured(seed, which)
    found = quietly(release, "rounded")
    values = found.values()
    assert (values >= 0).all()
    assert (values == np.rint(values)).all()
    check_sums(release, found, 0)
    unbiased = release.table().values
    assert abs(found.table().values - unbiased) <= 0.5 + max(0, -unbiased)


@pytest.mark.parametrize("which", WORKS)
def test_non_negative_tables_add_up_to_a_millionth(which):
    release, _ = measured(3, which)
    found = quietly(release, "nonnegative")
    assert found.values().min() >= 0
    check_sums(release, found, 1e-5)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    which=st.sampled_from(["same tables", "fewer and fewer", "counts"]),
    level=st.sampled_from(["place.l0", "place.l1", "place"]),
    empty=st.integers(0, 3),
)
def test_facts_are_kept_whatever_they_are(seed, which, level, empty):
    release, codes = measured(seed, which)
    schema = release.plan.schema
    place = schema["place"]
    gone = np.random.default_rng(seed).permutation(place.size)[: min(empty, place.size - 1)]
    codes = codes[~np.isin(codes[:, 1], gone)]
    classes = {
        "place.l0": place.level_of("l0"),
        "place.l1": place.level_of("l1"),
        "place": np.arange(place.size),
    }
    counts = np.bincount(classes[level][codes[:, 1]], minlength=classes[level].max() + 1)
    facts = [rs.known(rs.table(schema, [level]), counts)]
    if len(gone):
        labels = ", ".join(f"'{place.label(int(at))}'" for at in gone)
        facts.append(rs.impossible(rs.table(schema, ["place"], where=f"place IN ({labels})")))
    found = quietly(release, "rounded", facts)
    assert (found.table(level).values == counts).all()
    assert (found.table("place").values[gone] == 0).all()
    assert (found.values() >= 0).all()
    check_sums(release, found, 0)


def test_tables_of_places_by_other_attributes_that_are_known_are_kept():
    release, codes = measured(5, "same tables")
    schema = release.plan.schema
    work = rs.table(schema, ["place.l1", "sex"])
    county = schema["place"].level_of("l1")[codes[:, 1]]
    counts = np.zeros((schema["place.l1"].size, 3))
    np.add.at(counts, (county, codes[:, 2]), 1)
    found = quietly(release, "rounded", [rs.known(work, counts)])
    assert (found.table("place.l1", "sex").values == counts).all()
    check_sums(release, found, 0)


def test_a_level_known_in_part_is_a_lower_bound_of_what_is_above():
    release, _ = measured(6, "same tables", records=40)
    schema = release.plan.schema
    state = schema["place.l0"].label(0)
    work = rs.table(schema, ["place.l1"], where=f"place.l0 = '{state}'")
    counts = np.full(work.count, 1000.0)
    found = quietly(release, "rounded", [rs.known(work, counts)])
    assert found.table("place.l0").values[0] == counts.sum()
    assert (found.values(work) == counts).all()
    check_sums(release, found, 0)


def test_cells_that_occur_nowhere_are_empty_everywhere():
    release, _ = measured(7, "same tables")
    schema = release.plan.schema
    nobody = rs.impossible(rs.table(schema, ["age"], where="age = 0"))
    found = quietly(release, "rounded", [nobody])
    assert not found.table("place", "age").values[:, 0].any()
    check_sums(release, found, 0)


def test_facts_about_levels_are_kept_by_plans_of_other_methods_too():
    release, codes = measured(8, "same tables", method="smasher")
    schema = release.plan.schema
    counts = np.bincount(schema["place"].level_of("l0")[codes[:, 1]], minlength=schema["place.l0"].size)
    found = quietly(release, "rounded", [rs.known(rs.table(schema, ["place.l0"]), counts)])
    assert (found.table("place.l0").values == counts).all()
    check_sums(release, found, 0)


def test_facts_that_nothing_can_keep_are_refused():
    release, _ = measured(9, "same tables")
    schema = release.plan.schema
    states = rs.table(schema, ["place.l0"])
    with pytest.raises(Infeasible, match="not whole"):
        quietly(release, "rounded", [rs.known(states, np.full(states.count, 1.5))])
    counties = rs.table(schema, ["place.l1"])
    wrong = [rs.known(states, np.ones(states.count)), rs.known(counties, np.full(counties.count, 9.0))]
    with pytest.raises(DataError, match="contradict"):
        quietly(release, "rounded", wrong)
    where = f"place = '{schema['place'].label(0)}' AND sex = 'F'"
    tied = rs.impossible(rs.table(schema, ["place", "sex"], where=where))
    with pytest.raises(WorkloadError, match="ties places to cells"):
        quietly(release, "rounded", [tied])


def test_errors_come_from_simulations_and_sparse_places_gain():
    release, codes = measured(10, "same tables", records=60)
    found = release.rounded(replicates=3)
    errors = found.errors()
    assert errors.shape == found.values().shape
    assert np.isfinite(errors).all()
    truth = np.zeros(release.plan.schema.sizes)
    np.add.at(truth, tuple(codes.T), 1)
    work = rs.table(release.plan.schema, ["age", "place", "sex"])
    ours, plain = (np.abs(each.values(work) - truth.reshape(-1)).mean() for each in (found, release))
    assert ours < 0.8 * plain


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), tables=st.integers(1, 4), n=st.integers(1, 6), m=st.integers(1, 6))
def test_many_tables_are_rounded_to_their_margins_each_cell_by_less_than_one(seed, tables, n, m):
    draw = np.random.default_rng(seed)
    whole = draw.integers(0, 4, (tables, n, m)).astype(float)
    rows, columns = whole.sum(axis=2), whole.sum(axis=1)
    cells = rows[:, :, None] * columns[:, None, :] / np.maximum(rows.sum(axis=1), 1)[:, None, None]
    found = rounded_tables_of(cells, rows, columns)
    assert (found == np.rint(found)).all()
    assert (found.sum(axis=2) == rows).all()
    assert (found.sum(axis=1) == columns).all()
    assert (np.abs(found - cells) < 1).all()


def test_cells_of_three_attributes_that_cannot_occur_stay_empty_beside_places_that_are_known():
    place = rs.Hierarchy(("state", "county"), [("s0", "c0"), ("s0", "c1"), ("s1", "c2"), ("s1", "c3")])
    schema = rs.Schema(a=rs.Integer(0, 1), b=rs.Integer(0, 2), c=rs.Integer(0, 3), place=place)
    work = rs.table(schema, ["a", "b", "c"]) + rs.table(schema, ["place.state", "a", "b", "c"])
    plan = rs.plan(work + rs.table(schema, ["place", "c"]), rs.zcdp("0.5"), method="places")
    draw = np.random.default_rng(0)
    codes = np.column_stack([draw.integers(0, size, 400) for size in schema.sizes])
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))
    nobody = rs.impossible(rs.table(schema, ["a", "b", "c"], where="a = 1 AND b = 0 AND c = 2"))
    some = rs.known(rs.table(schema, ["place", "c"], where="place = 's0/c0'"), [20, 20, 30, 30])
    found = quietly(release, "rounded", [nobody, some]).table("a", "b", "c").values
    assert np.argwhere(found == 0).tolist() == [[1, 0, 2]]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), groups=st.integers(1, 5))
def test_numbers_shared_out_sum_to_their_totals_and_are_the_nearest(seed, groups):
    draw = np.random.default_rng(seed)
    sizes = draw.integers(1, 6, groups)
    starts = np.cumsum(sizes) - sizes
    cells, spread = draw.normal(2, 3, sizes.sum()), draw.random(sizes.sum()) + 0.1
    least = draw.integers(0, 2, sizes.sum()).astype(float)
    closed = np.zeros(sizes.sum(), dtype=bool)
    totals = np.add.reduceat(least, starts) + draw.integers(0, 9, groups)
    found = shared_among(cells, starts, totals, least, closed, spread)
    assert (found >= least).all()
    assert np.allclose(np.add.reduceat(found, starts), totals)
    for start, size in zip(starts, sizes, strict=True):  # one multiplier a group where numbers are free
        here = slice(start, start + size)
        free = found[here] > least[here] + 1e-9
        slope = (found[here] - cells[here]) / spread[here]
        assert np.ptp(slope[free], axis=0) < 1e-6 if free.any() else True
        assert (slope[~free] >= slope[free].min() - 1e-6).all() if free.any() else True
    whole = rounded_among(found, starts, totals)
    assert (np.add.reduceat(whole, starts) == totals).all()
    assert (np.abs(whole - found) < 1).all()
