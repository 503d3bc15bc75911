"""Public facts: what they do to tables, how they warn, and which are refused."""

import numpy as np
import pytest

import residua as rs

SCHEMA = rs.Schema(
    age=rs.Integer(0, 5), married=rs.Categorical("no", "yes"), place=rs.Categorical("a", "b", "c")
)
TOTAL = rs.marginals(SCHEMA, ways=0)
CHILDREN = rs.sql(SCHEMA, "SELECT COUNT(*) FROM people WHERE age < 2 AND married = 'yes'")


def rows(count=400):
    generator = np.random.default_rng(0)
    age = generator.integers(0, 6, count)
    married = (age >= 2) & (generator.random(count) < 0.6)
    return np.column_stack([age, married, generator.integers(0, 3, count)]).astype(np.int64)


@pytest.fixture(scope="module", params=["two-way", "three-way"])
def release(request):
    work = rs.marginals(SCHEMA, ways=2 if request.param == "two-way" else 3)
    return rs.measure(rs.plan(work, rs.zcdp("0.05")), rows(), ledger=None, noise=rs.simulated(seed=2))


@pytest.mark.parametrize("made", ["nonnegative", "rounded"])
def test_a_known_total_is_the_total(release, made):
    with pytest.warns(rs.PublicFactWarning):
        found = getattr(release, made)(rs.known(TOTAL, 400), replicates=0)
    assert found.table("age").values.sum() == pytest.approx(400, abs=1e-6)


@pytest.mark.parametrize("made", ["nonnegative", "rounded"])
def test_a_known_table_is_reproduced_and_the_others_add_up_to_it(release, made):
    counts = np.bincount(rows()[:, 2], minlength=3)
    with pytest.warns(rs.PublicFactWarning):
        found = getattr(release, made)([rs.known(rs.table(SCHEMA, ["place"]), counts)], replicates=0)
    assert found.table("place").values == pytest.approx(counts, abs=1e-6)
    assert found.table("married", "place").values.sum(axis=0) == pytest.approx(counts, abs=1e-6)


@pytest.mark.parametrize("made", ["nonnegative", "rounded"])
def test_what_is_impossible_is_exactly_zero(release, made):
    with pytest.warns(rs.PublicFactWarning):
        found = getattr(release, made)(rs.impossible(CHILDREN), replicates=0)
    assert not found.table("age", "married").values[:2, 1].any()
    assert found.tables.disagreement() <= 1e-6
    assert min(float(stack.cells.min()) for stack in found.tables.stacks) >= 0


def test_an_impossible_value_of_one_attribute_is_zero_everywhere(release):
    nobody = rs.impossible(rs.sql(SCHEMA, "SELECT COUNT(*) FROM people WHERE age = 3"))
    with pytest.warns(rs.PublicFactWarning):
        found = release.nonnegative(nobody, replicates=0)
    assert not found.table("age", "place").values[3].any()


@pytest.mark.parametrize("made", ["nonnegative", "rounded"])
def test_a_known_table_on_three_attributes_is_reproduced(made):
    plan = rs.plan(rs.marginals(SCHEMA, up_to=3), rs.zcdp("0.05"))
    release = rs.measure(plan, rows(), ledger=None, noise=rs.simulated(seed=2))
    counts = np.zeros(SCHEMA.sizes)
    np.add.at(counts, tuple(rows().T), 1)
    with pytest.warns(rs.PublicFactWarning):
        found = getattr(release, made)([rs.known(rs.table(SCHEMA, SCHEMA.names), counts)], replicates=0)
    assert found.table(*SCHEMA.names).values == pytest.approx(counts, abs=1e-6)
    assert found.table("age", "place").values == pytest.approx(counts.sum(axis=1), abs=1e-6)


def test_the_warning_and_the_note_say_what_a_fact_means_for_privacy(release):
    with pytest.warns(rs.PublicFactWarning, match=r"the number of records.*without any protection"):
        found = release.nonnegative(rs.known(TOTAL, 400))
    assert "without protection: known: the number of records" in found.note


def test_a_known_table_is_given_in_the_order_of_its_attributes():
    counts = np.arange(18).reshape(3, 6)
    fact = rs.known(rs.table(SCHEMA, ["place", "age"]), counts)
    assert np.array_equal(fact.tables[0][1], counts.T)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: rs.known("age", [1]), rs.WorkloadError, "given by a workload"),
        (lambda: rs.known(TOTAL, [1, 2]), rs.DataError, "1 known counts are needed"),
        (lambda: rs.known(TOTAL, -1), rs.DataError, "not negative"),
        (lambda: rs.known(rs.table(SCHEMA, age=rs.prefix), range(6)), rs.WorkloadError, "every cell"),
        (lambda: rs.impossible("age"), rs.WorkloadError, "given by a workload"),
        (
            lambda: rs.impossible(rs.linear(SCHEMA, ["married"], [[1.0, -1.0]])),
            rs.WorkloadError,
            "subtracts cells",
        ),
    ],
)
def test_what_is_no_fact_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_facts_that_contradict_each_other_are_refused(release):
    age = rs.known(rs.table(SCHEMA, ["age"]), [100, 0, 0, 0, 0, 0])
    with pytest.warns(rs.PublicFactWarning), pytest.raises(rs.DataError, match="contradict"):
        release.nonnegative([age, rs.known(TOTAL, 99)])
    children = rs.impossible(rs.sql(SCHEMA, "SELECT COUNT(*) FROM people WHERE age = 0"))
    with pytest.warns(rs.PublicFactWarning), pytest.raises(rs.DataError, match="impossible"):
        release.nonnegative([age, children])


def test_facts_about_other_things_are_refused(release):
    other = rs.Schema.of_sizes([2, 2])
    with pytest.raises(rs.SchemaError, match="different schemas"):
        release.nonnegative(rs.known(rs.marginals(other, ways=0), 3))
    with pytest.raises(rs.WorkloadError, match=r"rs\.known"):
        release.nonnegative([400])


def test_an_impossible_combination_that_no_table_shows_is_refused():
    work = rs.marginals(SCHEMA, ways=1)
    release = rs.measure(rs.plan(work, rs.zcdp(1)), rows(), ledger=None, noise=rs.simulated(seed=0))
    with pytest.warns(rs.PublicFactWarning), pytest.raises(rs.WorkloadError, match="no table together"):
        release.nonnegative(rs.impossible(CHILDREN))


def test_a_known_table_that_is_not_whole_cannot_be_rounded(release):
    half = rs.known(rs.table(SCHEMA, ["married"]), [200.5, 199.5])
    with pytest.warns(rs.PublicFactWarning), pytest.raises(rs.Infeasible, match="not whole"):
        release.rounded(half)
