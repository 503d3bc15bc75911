"""Conditions joined across attributes by AND, OR and NOT, against explicit matrices over all joint cells."""

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

import residua as rs
from residua.linalg.matrices import join, spread
from residua.methods import coarsening
from residua.methods.registry import methods_for
from residua.release import Measurements, Release
from residua.workload import Combined, Explicit, Factor, Table
from residua.workload.views import combined_factors

SIZES = (3, 3, 4, 2)
SCHEMA = rs.Schema.of_sizes(SIZES)
CODES = np.random.default_rng(3).integers(0, SIZES, (80, 4))

LEAVES = st.sampled_from(
    [
        "a0 >= 2",
        "a0 IN (0, 2)",
        "a0 = 1",
        "a1 < 1",
        "a1 <> 1",
        "a2 >= 3",
        "a2 IN (0, 2)",
        "a2 < 2",
        "a3 = 1",
    ]
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=5,
)
GROUPS = st.sampled_from(["", "a0", "a3", "a0, a3", "a2", "a1, a2"])
OTHERS = {
    "nothing": None,
    "total": rs.table(SCHEMA),
    "one-way": rs.marginals(SCHEMA, ways=1),
    "pairs": rs.marginals(SCHEMA, ways=(1, 2)),
    "prefixes": rs.all_tables(SCHEMA, 2, rs.prefix),
    "a pair": rs.table(SCHEMA, ["a0", "a2"]) + 2.0 * rs.table(SCHEMA, {"a1": rs.prefix}),
}


def statement(condition, groups):
    text = f"SELECT COUNT(*) FROM t WHERE {condition}"
    return f"{text} GROUP BY {groups}" if groups else text


def asked(statements):
    """The workload of the statements, if some of them ties attributes together."""
    try:
        work = rs.sql(SCHEMA, ";".join(statement(*each) for each in statements))
    except (
        rs.WorkloadError
    ):  # no cell meets a condition; which are read and which are not is tested elsewhere
        reject()
    assume(any(True for _ in combined_factors(work.parts)))
    return work


def explicit(work):
    """The same workload with every family over its joint cells."""
    parts = []
    for part in work.parts:
        for group in (part,) if isinstance(part, Table) else part:
            factors = [
                Factor(f.attributes, Explicit(f.queries.sizes, f.queries.matrix()))
                if isinstance(f.queries, Combined)
                else f
                for f in group.factors
            ]
            parts.append(Table(group.name, tuple(factors), group.weight))
    return rs.Workload(work.schema, tuple(parts))


def over_all_cells(group):
    rows = join(factor.queries.matrix() for factor in group.factors)
    sizes = [SIZES[at] for at in group.attributes]
    return spread(rows, sizes, group.attributes, SIZES)


def rows_of(work):
    return np.concatenate([over_all_cells(group) for group in work.groups()])


def measured(plan):
    """Every measured row over all cells, the true variance of its noise, and the side that measures it."""
    rows, variances, sides = [], [], []
    known = {}
    for batch in plan.batches:
        whole = batch.multiplier * join(batch.matrices)
        views = {part.place: part for part in batch.derived}
        for attributes, owner in zip(batch.subsets.tolist(), batch.owners.tolist(), strict=True):
            tensor = whole.reshape(len(whole), *batch.sizes)
            places = []  # of the attributes that each cell of the tensor's axes is a combination of
            for axis, at in reversed(list(enumerate(attributes, start=1))):
                own = views[at].attributes if at in views else (at,)
                if at in views:
                    cells = np.indices([SIZES[each] for each in own]).reshape(len(own), -1)
                    kinds = [
                        kinds.classes[codes] for kinds, codes in zip(views[at].partitions, cells, strict=True)
                    ]
                    flat = np.ravel_multi_index(kinds, [kinds.count for kinds in views[at].partitions])
                    tensor = np.take(tensor, views[at].joint.classes[flat], axis=axis)
                places = [*own, *places]
            sizes = [SIZES[at] for at in places]
            rows.append(spread(tensor.reshape(len(whole), -1), sizes, places, SIZES))
            variances += [batch.laws()[owner].variance] * len(whole)
            sides += [known.setdefault(id(batch.derived), len(known))] * len(whole)
    return np.concatenate(rows), np.array(variances), np.array(sides)


def dearest_record(plan, rows):
    """What the measurements cost the record that they cost most, from the rows over all cells."""
    laws = [
        batch.laws()[owner]
        for batch in plan.batches
        for owner in batch.owners.tolist()
        for _ in range(batch.rows)
    ]
    parameters = np.array([float(law.parameter) for law in laws])[:, None]
    sizes = rows**2 if plan.strategy.law == "gaussian" else np.abs(rows)
    return float(np.max(np.sum(sizes / parameters, axis=0)))


def independent(rows, sides):
    """Whether the sides measure nothing in common."""
    ranks = [np.linalg.matrix_rank(rows[sides == side], tol=1e-7) for side in np.unique(sides)]
    return np.linalg.matrix_rank(rows, tol=1e-7) == sum(ranks)


def weights_in_answers(plan, work, count):
    """What each measured number counts for in each answer, by answering from one number at a time."""
    shapes = [(len(batch.subsets), batch.rows) for batch in plan.batches]
    found = []
    for at in range(count):
        flat = np.zeros(count, dtype=np.int64)
        flat[at] = 2**30
        values, start = [], 0
        for blocks, own in shapes:
            values.append(flat[start : start + blocks * own].reshape(blocks, own))
            start += blocks * own
        audit = {"simulated": True, "time": ""}
        found.append(Release(plan, Measurements(tuple(values)), audit).values(work) / 2**30)
    return np.array(found).T  # (queries, numbers)


def check_twins(plan, work):
    """Figures and answers are those of least squares over all joint cells, and no record costs too much.

    Where two sides measure something in common, what one of them could add to the other is not used; figures
    are then those of the answers as they are (claim H-041).
    """
    rows, variances, sides = measured(plan)
    wanted = rows_of(work)
    assert dearest_record(plan, rows) <= float(plan.unit.allowance(plan.budget)) * (1 + 1e-12)
    if plan.strategy.coarsened and not independent(rows, sides):
        weights = weights_in_answers(plan, work, len(rows))
    else:
        scaled = rows / np.sqrt(variances)[:, None]
        weights = wanted @ np.linalg.pinv(scaled, rcond=1e-11) / np.sqrt(variances)
    np.testing.assert_allclose(weights @ rows, wanted, atol=1e-5)  # no bias
    expected = weights * variances @ weights.T
    own = np.diagonal(expected)
    np.testing.assert_allclose(plan.variances(work), own, rtol=1e-6, atol=1e-9)
    factors = np.concatenate([np.full(group.count, group.weight) for group in work.groups()])
    assert plan.total_variance == pytest.approx(float(factors @ own), rel=1e-6)
    assert plan.max_variance == pytest.approx(own.max(), rel=1e-6)
    scale = np.sqrt(np.multiply.outer(own, own))
    np.testing.assert_allclose(plan.covariance(work, work) / scale, expected / scale, atol=1e-6)
    release = rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=2))
    numbers = np.concatenate([values.reshape(-1) for values in release.measurements.values])
    np.testing.assert_allclose(release.values(work), weights @ numbers, rtol=1e-6, atol=1e-6)


def check_plan(work, budget, *, beside):
    """The plan of a workload is right; with `beside` one that does not take all tables by the same kinds."""
    with pytest.MonkeyPatch.context() as patch:
        if beside:
            patch.setattr(coarsening, "_by_classes", _refused)
        plan = rs.plan(work, budget)
    check_twins(plan, work)


def _refused(*_):
    raise rs.Infeasible("not this way")


STATEMENTS = st.lists(st.tuples(CONDITIONS, GROUPS), min_size=1, max_size=2)


@settings(max_examples=16)
@given(statements=STATEMENTS, other=st.sampled_from(sorted(OTHERS)), beside=st.booleans())
def test_gaussian_figures_and_answers_are_those_over_all_joint_cells(statements, other, beside):
    """Claims W-011, H-040 and H-041."""
    work = asked(statements)
    if OTHERS[other] is None:
        check_plan(work, rs.zcdp("0.5"), beside=False)
    else:
        check_plan(work + OTHERS[other], rs.zcdp("0.5"), beside=beside)


@settings(max_examples=5)
@given(statements=STATEMENTS, other=st.sampled_from(["nothing", "one-way", "total"]), beside=st.booleans())
def test_laplace_figures_and_answers_are_those_over_all_joint_cells(statements, other, beside):
    work = asked(statements)
    if OTHERS[other] is None:
        check_plan(work, rs.pure_dp(1), beside=False)
    else:
        check_plan(work + OTHERS[other], rs.pure_dp(1), beside=beside)


TWINS = {
    "conditions": rs.sql(
        SCHEMA,
        "SELECT COUNT(*) FROM t WHERE a0 >= 2 OR a1 = 0 OR a2 < 2;"
        "SELECT a3, COUNT(*) FROM t WHERE NOT (a0 = 1 AND (a1 = 1 OR a2 = 2)) GROUP BY a3",
    ),
    "with tables": rs.sql(SCHEMA, "SELECT COUNT(*) FROM t WHERE a0 >= 2 OR a1 = 0 OR a2 < 2")
    + rs.marginals(SCHEMA, up_to=1),
}


SOME = ["auto", "querysmasher", "residualplanner+", "fourier", "dense", "hdmm-marginals"]
PURE = ["auto", "hdmm-kron", "hdmm-union", "hdmm-marginals", "identity"]
CASES = [
    *(("conditions", method, "zcdp") for method in methods_for("gaussian")),
    *(("with tables", method, "zcdp") for method in SOME),
    *(("conditions", method, "pure") for method in PURE),
    ("with tables", "auto", "pure"),
]


@pytest.mark.parametrize(("name", "method", "budget"), CASES)
def test_every_method_that_takes_an_explicit_matrix_takes_conditions_and_is_no_worse(name, method, budget):
    work, twin = TWINS[name], explicit(TWINS[name])
    budget = rs.zcdp("0.5") if budget == "zcdp" else rs.pure_dp(1)
    try:
        expected = rs.plan(twin, budget, method=method)
    except (rs.Infeasible, rs.WorkloadError):
        return
    plan = rs.plan(work, budget, method=method)
    check_twins(plan, work)
    if method != "smasher":  # it takes small joint families as one block, and joint kinds are no such family
        # Ways are compared by real noise, and integer noise on plain counts is a little narrower.
        assert plan.total_variance <= expected.total_variance * (1.001 if budget.law == "gaussian" else 1.05)
    np.testing.assert_allclose(expected.variances(twin), expected.variances(work), rtol=1e-9)
