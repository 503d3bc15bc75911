"""Plans for conditions joined across attributes of any size, end to end, and what is refused."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import residua as rs
from residua.answering.coarsened import query_split_of
from residua.decompose import decompose
from residua.linalg.classes import Classes, common_refinement
from residua.linalg.matrices import Measure
from residua.methods import blocks, coarsening
from residua.methods.blocks import Optimal
from residua.privacy.unit import Person
from residua.strategy.rounding import measurable
from residua.workload.views import View, classes_of, coarsened

SCHEMA = rs.Schema(
    age=rs.Integer(0, 99), hours=rs.Integer(0, 99), income=rs.Integer(0, 99), sex=rs.Categorical("F", "M")
)
EITHER = "age >= 65 OR hours >= 60 OR income >= 90"
COUNT = f"SELECT COUNT(*) FROM people WHERE {EITHER}"
BY_SEX = f"SELECT sex, COUNT(*) FROM people WHERE {EITHER} GROUP BY sex"
CODES = np.random.default_rng(7).integers(0, SCHEMA.sizes, (3000, 4))
MET = (CODES[:, 0] >= 65) | (CODES[:, 1] >= 60) | (CODES[:, 2] >= 90)
BUDGETS = {"zcdp": rs.zcdp("0.5"), "pure": rs.pure_dp(1)}


def works():
    alone = rs.sql(SCHEMA, COUNT)
    return {
        "alone": alone,
        "grouped": rs.sql(SCHEMA, BY_SEX),
        "with marginals": alone + rs.sql(SCHEMA, BY_SEX) + rs.marginals(SCHEMA, ways=(1, 2)),
    }


@pytest.fixture(scope="module")
def plans():
    known = {}

    def find(name, budget):
        if (name, budget) not in known:
            known[name, budget] = rs.plan(works()[name], BUDGETS[budget])
        return known[name, budget]

    return find


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", works())
def test_a_million_joint_cells_are_planned_measured_answered_saved_and_loaded(plans, name, budget, tmp_path):
    plan, work = plans(name, budget), works()[name]
    release = rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=3))
    deviation = math.sqrt(plan.variances(work)[0])
    answer = release.sql(COUNT).to_pylist()[0]
    assert abs(answer["value"] - MET.sum()) < 5 * answer["stddev"]
    assert answer["query"] == f"({EITHER})"
    if name != "grouped":
        assert answer["stddev"] == pytest.approx(deviation, rel=1e-9)
        assert answer["value"] == pytest.approx(release.values(work)[0], rel=1e-9)
    plan.save(tmp_path / "people.plan")
    assert rs.Plan.load(tmp_path / "people.plan").hash == plan.hash
    release.save(tmp_path / "people.release")
    again = rs.Release.load(tmp_path / "people.release")
    np.testing.assert_array_equal(again.values(work), release.values(work))
    np.testing.assert_array_equal(again.plan.variances(work), plan.variances(work))
    assert max(batch.cells for batch in plan.batches) <= 10_000


@pytest.mark.parametrize("budget", BUDGETS)
def test_one_condition_is_one_count_with_the_noise_of_one_count(plans, budget):
    """Claim H-010: what no query tells apart is measured together, however many cells that is."""
    one_cell = rs.plan(rs.table(rs.Schema.of_sizes([2]), {"a0": rs.buckets((0,))}), BUDGETS[budget])
    assert plans("alone", budget).total_variance == pytest.approx(one_cell.total_variance, rel=1e-6)
    assert plans("grouped", budget).max_variance == pytest.approx(one_cell.total_variance, rel=1e-6)
    if budget == "zcdp":
        assert plans("alone", budget).certificate.scope == "all mechanisms"
        assert plans("alone", budget).certificate.gap < 1e-6


def test_a_condition_beside_marginals_costs_little_and_is_far_better_than_added_up_cells(plans):
    work = works()["with marginals"]
    plan = plans("with marginals", "zcdp")
    others = rs.marginals(SCHEMA, ways=(1, 2))
    alone = rs.plan(others, BUDGETS["zcdp"])
    assert plan.certificate.scope == "all mechanisms"
    assert plan.certificate.gap < 0.02
    assert plan.variances(others).sum() < 1.01 * alone.total_variance
    pair = rs.sql(SCHEMA, "SELECT COUNT(*) FROM t WHERE age >= 65 OR hours >= 60")
    assert plan.variances(work)[0] < alone.variances(pair)[0] / 3


def test_the_negation_is_the_total_less_the_condition(plans):
    """Claim H-041: a query may ask something of either side."""
    plan = plans("with marginals", "zcdp")
    release = rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=4))
    neither = rs.sql(SCHEMA, f"SELECT COUNT(*) FROM t WHERE NOT ({EITHER})")
    either, total = rs.sql(SCHEMA, COUNT), rs.table(SCHEMA)
    assert release.values(neither)[0] == pytest.approx(
        release.values(total)[0] - release.values(either)[0], rel=1e-9
    )
    assert plan.variances(neither)[0] == pytest.approx(
        plan.variances(total)[0] + plan.variances(either)[0], rel=1e-9
    )
    assert plan.covariance(neither, either)[0, 0] == pytest.approx(-plan.variances(either)[0], rel=1e-9)


def test_manifests_that_meet_all_conditions_follow_from_those_that_meet_any(plans):
    """Inclusion and exclusion, from pairs and the condition: found by asking, not by being told."""
    plan = plans("with marginals", "zcdp")
    release = rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=8))
    every = release.sql(
        "SELECT COUNT(*) FROM t WHERE age >= 65 AND hours >= 60 AND income >= 90"
    ).to_pylist()[0]
    truth = np.sum((CODES[:, 0] >= 65) & (CODES[:, 1] >= 60) & (CODES[:, 2] >= 90))
    assert abs(every["value"] - truth) < 5 * every["stddev"]


def test_a_condition_of_which_a_part_was_not_measured_is_refused():
    schema = rs.Schema.of_sizes([3, 3, 3])
    work = rs.table(schema, where="a0 = 1 OR a1 = 1 OR a2 = 1") + rs.marginals(schema, up_to=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coarsening, "_by_classes", _not_this_way)
        plan = rs.plan(work, rs.zcdp(1))
    with pytest.raises(rs.NotInSpan, match=r"more than the plan measures by classes of cells.*'a0', 'a1'"):
        plan.variances(rs.table(schema, where="a0 = 1 OR a1 = 1"))


def _not_this_way(*_):
    raise rs.Infeasible("not this way")


def test_any_number_of_joint_cells_can_be_tied_together():
    schema = rs.Schema.of_sizes([100] * 12 + [3])
    codes = np.random.default_rng(2).integers(0, schema.sizes, (500, 13))
    condition = " OR ".join(f"a{at} < 5" for at in range(12))
    work = rs.sql(schema, f"SELECT a12, COUNT(*) FROM t WHERE {condition} GROUP BY a12") + rs.marginals(
        schema, 1
    )
    plan = rs.plan(work, rs.zcdp(50))
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=1))
    met = (codes[:, :12] < 5).any(axis=1)
    expected = [int(np.sum(met & (codes[:, 12] == at))) for at in range(3)]
    np.testing.assert_allclose(
        release.values(work)[:3], expected, atol=5 * math.sqrt(plan.variances(work)[0])
    )


def test_groups_within_a_condition_are_split_as_they_need_be():
    """Rows that a marginal determines are asked of the cells, the others by kinds (claim H-041)."""
    schema = rs.Schema.of_sizes([12, 100, 100, 100])
    codes = np.random.default_rng(5).integers(0, schema.sizes, (2000, 4))
    condition = "a0 >= 8 OR a1 >= 60 OR a2 >= 90 OR a3 < 3"
    met = (codes[:, 0] >= 8) | (codes[:, 1] >= 60) | (codes[:, 2] >= 90) | (codes[:, 3] < 3)
    work = rs.table(schema, ["a0"], where=condition) + rs.table(schema, where=f"NOT ({condition})")
    work += rs.marginals(schema, up_to=1)
    plan = rs.plan(work, rs.zcdp(50))
    assert plan.strategy.query_splits
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=5))
    expected = [*np.bincount(codes[met, 0], minlength=12), np.sum(~met)]
    found, spread = release.values(work)[:13], np.sqrt(plan.variances(work)[:13])
    assert np.all(np.abs(found - expected) < 5 * spread)
    np.testing.assert_allclose(found[8:12], release.table("a0").values[8:], rtol=1e-9, atol=1e-9)


def test_marginals_of_pairs_answer_conditions_on_more_joint_cells_than_are_listed():
    schema = rs.Schema.of_sizes([300, 250])
    codes = np.random.default_rng(3).integers(0, schema.sizes, (400, 2))
    text = "SELECT COUNT(*) FROM t WHERE a0 >= 200 OR a1 < 50"
    plan = rs.plan(rs.marginals(schema, up_to=2), rs.zcdp(50))
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=6))
    answer = release.sql(text).to_pylist()[0]
    cells = release.table("a0", "a1").values
    rows = np.zeros(schema.sizes)
    rows[200:], rows[:, :50] = 1, 1
    assert answer["value"] == pytest.approx(np.sum(rows * cells), rel=1e-9)
    products = "SELECT COUNT(*) FROM t WHERE a0 < 200 AND a1 >= 50"
    assert answer["value"] == pytest.approx(
        release.values(rs.table(schema))[0] - release.sql(products).to_pylist()[0]["value"], rel=1e-9
    )


def test_a_query_that_is_not_measured_is_refused_with_its_attributes(plans):
    release = rs.measure(plans("alone", "zcdp"), CODES, ledger=None, noise=rs.simulated(seed=1))
    with pytest.raises(rs.NotInSpan, match=r"tells apart cells that the plan measures together.*'age'"):
        release.sql("SELECT COUNT(*) FROM t WHERE age >= 66 OR hours >= 60")
    with pytest.raises(rs.NotInSpan, match="needs a total that the plan's measurements do not contain"):
        release.sql("SELECT COUNT(*) FROM t")
    with pytest.raises(rs.NotInSpan, match="tells apart cells"):
        release.sql("SELECT COUNT(*) FROM t WHERE age >= 65")
    beside = rs.measure(plans("with marginals", "zcdp"), CODES, ledger=None, noise=rs.simulated(seed=1))
    with pytest.raises(rs.NotInSpan, match="tells apart cells"):
        beside.table("age", "hours", "income")
    assert (beside.nonnegative().table("age").values >= 0).all()


def test_targets_and_largest_variance_look_at_kinds_of_cells_too():
    work = rs.sql(SCHEMA, COUNT, name="T") + rs.sql(SCHEMA, BY_SEX, name="S")
    plan = rs.plan(work, targets={"T": rs.stddev(4), "S": rs.stddev(3)})
    assert np.sqrt(plan.variances(work)) == pytest.approx([4, 3, 3], rel=0.1)
    assert plan.targets.met
    assert rs.plan(work, rs.zcdp(1), objective="max_variance").max_variance < 1.01
    with pytest.raises(rs.Infeasible, match=r"1,000,000 classes of cells.*in a release of its own"):
        rs.plan(work + rs.marginals(SCHEMA, 1), rs.zcdp(1), objective="max_variance")


def test_what_has_too_many_kinds_of_cells_is_refused_with_a_remedy():
    tied = " WHERE age = 1 OR hours = 1 OR income = 1"
    work = rs.sql(SCHEMA, f"SELECT COUNT(*) FROM t{tied} GROUP BY age")
    work += rs.sql(SCHEMA, f"SELECT COUNT(*) FROM t{tied} GROUP BY hours")
    work += rs.sql(SCHEMA, f"SELECT COUNT(*) FROM t{tied} GROUP BY income")
    with pytest.raises(
        rs.Infeasible, match=r"ties age x hours x income together.*1,000,000 classes of cells"
    ):
        rs.plan(work, rs.zcdp(1), method="dense")


def test_a_table_may_have_a_condition_as_sql_writes_it():
    with_condition = rs.table(SCHEMA, ["sex"], where=EITHER)
    (group,), (expected,) = with_condition.groups(), rs.sql(SCHEMA, BY_SEX).groups()
    assert group.factors == expected.factors
    assert group.name == f"sex where {EITHER}"
    narrowed = rs.table(SCHEMA, {"age": rs.ranges, "sex": rs.total}, where="age < 3 AND sex = 'F'")
    rows = [factor.queries.matrix() for group in narrowed.groups() for factor in group.factors]
    assert rows[0][:, 3:].sum() == 0
    assert rows[0].shape[0] == sum(100 - start for start in range(3))
    np.testing.assert_array_equal(rows[1], [[1, 0]])


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("agee > 3", "column 1: column 'agee' is not in the schema"),
        ("age > 3 AND\n hours > 'x'", "line 2, column 2: attribute 'hours' holds numbers"),
        ("age > 3 GROUP BY sex", "is not one condition"),
        ("age > 3; SELECT 1", "is not one condition"),
        ("age > 3 UNION SELECT COUNT(*) FROM t", "is not one condition"),
        ("", "something is missing"),
        (5, "where is a condition as text"),
    ],
)
def test_what_is_not_one_condition_is_refused(condition, words):
    with pytest.raises(rs.WorkloadError, match=r"^table '(sex|total)") as caught:
        rs.table(SCHEMA, ["sex"], where=condition, name="sex")
    assert words in str(caught.value)


def test_an_attribute_may_be_called_where():
    schema = rs.Schema(where=rs.Integer(0, 3))
    assert rs.table(schema, where=rs.prefix).count == 4


def test_families_on_pairs_are_not_restricted():
    schema = rs.Schema.of_sizes([3, 3, 2])
    pair = {("a0", "a1"): rs.affine}
    assert rs.table(schema, pair, where="a2 = 1").count == 5
    with pytest.raises(rs.WorkloadError, match="affine on 3 x 3 cells cannot be restricted"):
        rs.table(schema, pair, where="a0 = 1")


def test_a_plan_whose_kinds_do_not_fit_its_schema_is_not_measured(plans):
    plan = plans("alone", "zcdp")
    (domain,) = plan.strategy.domains
    (part,) = domain.view.parts
    for forged in (
        replace(part, partitions=(Classes.of([0, 1]), *part.partitions[1:])),
        replace(part, joint=Classes.of([0, 1])),
    ):
        strategy = replace(plan.strategy, domains=(replace(domain, view=View((forged,))),))
        with pytest.raises(rs.BudgetError, match="classes of cells that its schema does not have"):
            rs.measure(replace(plan, strategy=strategy), CODES, ledger=None, noise=rs.simulated(seed=1))


def test_kinds_are_numbered_as_they_occur_and_measured_by_their_cells():
    kinds = Classes.of(["b", "a", "b", "c"])
    assert kinds.classes.tolist() == [0, 1, 0, 2]
    assert kinds == Classes(np.array([9, 3, 9, 4]))
    assert common_refinement([kinds, Classes.of([0, 0, 1, 1])]).count == 4
    assert kinds.measure(Measure(4)) == Measure.whole([2, 1, 1])
    assert kinds.measure(Measure.whole([1, 2, 3, 4])) == Measure.whole([4, 2, 4])
    np.testing.assert_allclose(
        kinds.measure(Measure.of(np.array([0.1, 0.2, 0.3, 0.4]))).vector(), [0.4, 0.2, 0.4]
    )


@pytest.mark.parametrize(
    ("family", "kinds"),
    [
        (rs.total, [0] * 6),
        (rs.buckets(2, 4), [0, 0, 1, 1, 2, 2]),
        (rs.buckets((0, 1), (1, 2)), [0, 1, 2, 3, 3, 3]),
        (rs.prefix, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_families_over_the_kinds_they_tell_apart_ask_the_same(family, kinds):
    queries = family.bind(rs.Integer(0, 5))
    found = classes_of(queries, 0)
    assert found.classes.tolist() == kinds
    over = coarsened(queries, [found])
    np.testing.assert_array_equal(found.spread(over.matrix(), 1), queries.matrix())
    assert found.trivial or coarsened(rs.identity.bind(rs.Integer(0, 5)), [found]) is None


def test_what_is_beyond_settled_attributes_is_what_no_function_of_them_can_change():
    """Claim H-041, against a projection over all combinations of kinds."""
    schema = rs.Schema.of_sizes([2, 3, 2])
    conditions = ("a0 = 1 OR a1 = 2 OR a2 = 1", "a0 = 0 OR a1 = 1")
    groups = [group for each in conditions for group in rs.table(schema, where=each).groups()]
    kinds = [Classes.every(size) for size in schema.sizes]
    lift = query_split_of((0, 1, 2), kinds, [(0, 1), (2,)], groups)
    cells = np.indices(schema.sizes).reshape(3, -1)
    settled = np.concatenate(
        [
            [(cells[0] == i) & (cells[1] == j) for i in range(2) for j in range(3)],
            [cells[2] == k for k in range(2)],
        ]
    ).astype(float)
    np.testing.assert_allclose(lift.beyond(settled), 0, atol=1e-12)
    assert np.linalg.matrix_rank(settled) + lift.beyond(np.eye(12)).shape[1] == 12
    assert len(lift.rows) == 1  # the second condition is a function of what is settled


def test_products_of_factors_under_weights_that_are_not_uniform_are_measured(monkeypatch):
    """A block that is too large to be solved as one keeps to the measure that its pieces are centred by."""
    monkeypatch.setattr(blocks, "BLOCK_RANK", 20)
    schema = rs.Schema.of_sizes([8, 9])
    work = rs.linear(schema, ("a0", "a1"), np.tri(3, 72, 30)) + rs.all_tables(schema, (1, 2), rs.prefix)
    weights = (Measure.whole(range(1, 9)), Measure.whole([3, 1, 4, 1, 5, 9, 2, 6, 5]))
    draft = blocks.solve_blocks(decompose(work, weights), schema.sizes, Optimal(), 1e-4)
    found = measurable(draft.strategy, draft.spans, Fraction(1), Person(rs.Unit()))
    ideal = sum(draft.strategy.totals(part)[0] for part in work.parts)
    assert sum(found.totals(part)[0] for part in work.parts) == pytest.approx(ideal, rel=1e-2)
