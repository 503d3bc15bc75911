"""A loss of one's own: the best noise for it, the bound, and what is refused."""

import cvxpy as cp
import numpy as np
import pytest
from random_work import LOSSES, least_loss, random_work

import residua as rs
from residua.decompose import decompose
from residua.errors import Infeasible, WorkloadError
from residua.methods.blocks import Optimal, solve_blocks
from residua.methods.scales import priced
from residua.methods.scales.loss import block_loss
from residua.methods.scales.targets import block_targets

sizes = rs.Schema.of_sizes


@pytest.fixture
def stakeholders():
    schema = sizes([5, 4, 3, 6])
    alicia = rs.table(schema, ["a0", "a1"], name="alicia") + rs.table(schema, ["a2"], name="alicia")
    bob = rs.table(schema, ["a1", "a2", "a3"], name="bob")
    return alicia + bob + rs.marginals(schema, ways=2, name="carol")


def means(work, found):
    """Mean variance of the queries of each name."""
    return {
        name: sum(found.strategy.totals(part)[1] for part in work.select(name).parts)
        / work.select(name).count
        for name in work.names
    }


def totals(work, variances):
    return {name: work.select(name).count * variance for name, variance in variances.items()}


def test_total_variance_as_a_loss_is_the_closed_form(stakeholders):
    found = block_loss(stakeholders, lambda v: sum(totals(stakeholders, v).values()), 1e-6)
    parts = decompose(stakeholders)
    closed = solve_blocks(parts, stakeholders.schema.sizes, Optimal(), 1e-6).value
    assert found.value == pytest.approx(closed, rel=1e-6)
    assert found.lower_bound == pytest.approx(closed, rel=1e-5)
    assert found.strategy.cost() == pytest.approx(1)
    assert found.scope == "all mechanisms"


def test_the_unhappiest_stakeholder_is_as_happy_as_can_be(stakeholders):
    found = block_loss(stakeholders, lambda v: cp.maximum(*totals(stakeholders, v).values()), 1e-6)
    shares = totals(stakeholders, means(stakeholders, found))
    assert max(shares.values()) == pytest.approx(found.value)
    assert shares["bob"] == pytest.approx(shares["carol"], rel=1e-4)  # neither gains without the other losing
    assert shares["alicia"] < shares["bob"]
    assert found.lower_bound <= found.value <= found.lower_bound * (1 + 1e-5)
    for name, variance in means(stakeholders, found).items():
        listed = [found.strategy.variances(group) for group in stakeholders.select(name).groups()]
        assert np.concatenate(listed).mean() == pytest.approx(variance)


def test_the_largest_variance_of_marginals_as_a_loss_is_that_of_equal_caps():
    work = rs.marginals(sizes([3, 4, 2]), ways=1) + rs.marginals(sizes([3, 4, 2]), ways=2)
    found = block_loss(work, lambda v: cp.maximum(*v.values()), 1e-6)
    assert found.value == pytest.approx(block_targets(work, [1.0, 1.0], 1e-6).strategy.cost(), rel=1e-5)


def test_a_budget_scales_noise_and_a_loss_need_not_scale_with_it(stakeholders):
    twice = block_loss(stakeholders, lambda v: cp.square(v["bob"]) + v["carol"] + v["alicia"], 1e-6, cost=2.0)
    assert twice.strategy.cost() == pytest.approx(2)
    once = block_loss(stakeholders, lambda v: cp.square(v["bob"] / 2) + (v["carol"] + v["alicia"]) / 2, 1e-6)
    assert twice.value == pytest.approx(once.value, rel=1e-5)


def test_total_variance_with_a_target_beside_it(stakeholders):
    def mixed(v):
        return sum(totals(stakeholders, v).values()) + cp.transforms.indicator([v["bob"] <= 1.5])

    free = block_loss(stakeholders, lambda v: sum(totals(stakeholders, v).values()), 1e-6)
    bound = block_loss(stakeholders, mixed, 1e-6)
    assert means(stakeholders, free)["bob"] > 1.5
    assert means(stakeholders, bound)["bob"] == pytest.approx(1.5, rel=1e-5)
    assert bound.value > free.value


def test_shapes_that_depend_on_the_loss_leave_a_gap_that_is_stated():
    schema = sizes([5, 4])
    work = rs.marginals(schema, ways=1) + rs.all_tables(schema, ways=2, family=rs.prefix, name="pairs")
    found = block_loss(work, lambda v: cp.maximum(v["a0"], v["pairs"]) + 0.1 * v["a1"], 1e-5)
    assert found.scope == "this block structure"
    assert found.lower_bound <= found.value <= 1.01 * found.lower_bound


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda v: cp.sqrt(v["bob"]), "not convex by the rules of cvxpy"),
        (lambda v: v["carol"] - v["bob"], "falls where a variance grows"),
        (lambda v: cp.square(v["bob"] - 5), "falls where a variance grows"),
        (lambda v: v["bobby"], "table 'bobby', which the workload does not have .did you mean 'bob'"),
        (lambda v: 3.0, "must return one cvxpy expression"),
        (lambda v: cp.hstack([v["bob"], v["carol"]]), "must return one cvxpy expression"),
        (lambda v: cp.Constant(1.0), "same for all variances"),
    ],
)
def test_a_loss_that_cannot_be_planned_is_refused_with_the_reason(stakeholders, loss, message):
    with pytest.raises(WorkloadError, match=message):
        block_loss(stakeholders, loss, 1e-4)


def test_conditions_that_the_budget_cannot_meet_are_refused(stakeholders):
    with pytest.raises(Infeasible, match="no plan of this privacy cost meets the conditions"):
        block_loss(stakeholders, lambda v: v["carol"] + cp.transforms.indicator([v["bob"] <= 0.1]), 1e-4)


def test_without_the_extra_the_error_says_what_to_install(stakeholders, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(priced, "import_module", missing)
    with pytest.raises(Infeasible, match=r"pip install 'residua\[convex\]'"):
        block_loss(stakeholders, lambda v: v["bob"], 1e-4)


def test_many_tables_without_a_name_are_refused_with_a_remedy(stakeholders):
    with pytest.raises(WorkloadError, match="give a run one"):
        block_loss(rs.marginals(sizes([2] * 30), ways=3), lambda v: cp.maximum(*v.values()), 1e-4)


@pytest.mark.parametrize(
    ("by_place", "by_name"),
    [
        (lambda v: cp.max(v), lambda v: cp.maximum(*v.values())),
        (lambda v: cp.sum(v), lambda v: sum(variance for _, variance in v.items())),
        (lambda v: sum(v), lambda v: sum(dict(v).values())),
        (lambda v: cp.square(v[1]) + v[0] + v[-1], lambda v: cp.square(v["bob"]) + v["carol"] + v["alicia"]),
    ],
    ids=["max", "sum", "builtin sum", "entries"],
)
def test_a_loss_of_the_vector_of_variances_is_the_same_loss_by_name(stakeholders, by_place, by_name):
    one, other = (block_loss(stakeholders, loss, 1e-6) for loss in (by_place, by_name))
    assert one.value == pytest.approx(other.value, rel=1e-9)
    assert means(stakeholders, one) == pytest.approx(means(stakeholders, other), rel=1e-6)


@pytest.fixture
def mixed():
    """Three tables that want different matrices of the same 64 cells."""
    schema = sizes([8, 8])
    prefix = rs.table(schema, a0=rs.prefix, name="prefix")
    pairs = rs.table(schema, {"a0": rs.identity, "a1": rs.prefix}, name="pairs")
    return prefix + pairs + rs.all_tables(schema, ways=2, family=rs.affine, name="affine")


def value(plan):
    return plan.certificate.lower_bound * (1 + plan.certificate.gap)


def test_rounds_of_plans_reach_the_optimum_where_shapes_depend_on_the_loss(mixed):
    plan = rs.plan(mixed, rs.privacy_cost(1), objective=lambda v: cp.max(v))
    assert value(plan) < 4.34
    assert plan.certificate.scope == "all mechanisms"
    assert plan.certificate.gap < 1e-4
    assert value(plan) == pytest.approx(
        max(plan.variances(mixed.select(name)).mean() for name in mixed.names)
    )


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("name", LOSSES)
def test_no_mechanism_has_a_lower_loss_and_none_that_is_found_a_much_higher_one(seed, name):
    work = random_work(np.random.default_rng(seed), 2, 24)
    plan = rs.plan(work, rs.privacy_cost(1), objective=LOSSES[name])
    best = least_loss(work, LOSSES[name])
    assert value(plan) <= 1.01 * best
    assert plan.certificate.lower_bound <= best * (1 + 1e-4)


def test_a_plan_for_a_loss_is_never_worse_than_the_default_plan():
    schema = sizes([10, 6, 5, 8])
    work = rs.all_tables(schema, ways=2, family=rs.prefix, name="pairs") + rs.table(
        schema, {"a0": rs.ranges, "a3": rs.identity}, name="ranges"
    )
    plan = rs.plan(work, rs.privacy_cost(1), objective=lambda v: cp.max(v), effort="quick")
    default = rs.plan(work, rs.privacy_cost(1), effort="quick")
    reached, blocks = (
        max(each.variances(work.select(name)).mean() for name in work.names)
        for each in (default, rs.plan(work, rs.privacy_cost(1), objective=cp.max, method="querysmasher"))
    )
    assert value(plan) <= reached * (1 + 1e-4)
    assert value(plan) <= blocks * (1 + 1e-4)
    assert plan.certificate.lower_bound > 0


def test_conditions_that_blocks_cannot_meet_are_met_by_other_plans(mixed):
    def promised(v):
        return cp.sum(v) + cp.transforms.indicator([v["prefix"] <= 2.4])

    with pytest.raises(Infeasible):
        block_loss(mixed, promised, 1e-4)
    plan = rs.plan(mixed, rs.privacy_cost(1), objective=promised)
    assert plan.variances(mixed.select("prefix")).mean() <= 2.4 * (1 + 1e-4)
    assert 0 <= plan.certificate.gap < 1e-3
    with pytest.raises(Infeasible, match="no plan of this privacy cost meets the conditions"):
        rs.plan(
            mixed,
            rs.privacy_cost(1),
            objective=lambda v: cp.sum(v) + cp.transforms.indicator([v["prefix"] <= 2.2]),
        )


def test_tables_that_the_loss_does_not_see_are_answered_all_the_same(mixed):
    plan = rs.plan(mixed, rs.privacy_cost(1), objective=lambda v: cp.square(v["prefix"]) + v["affine"])
    assert np.isfinite(plan.variances(mixed.select("pairs"))).all()
    assert plan.certificate.gap < 2e-3
