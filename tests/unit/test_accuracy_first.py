"""Accuracy first: plans that meet their targets, with the least privacy and a proof of it."""

import numpy as np
import pytest

import residua as rs

SCHEMA = rs.Schema(age=rs.Integer(0, 7), sex=rs.Categorical("F", "M"))
T1 = rs.table(SCHEMA, {"age": rs.prefix, "sex": rs.identity}, name="T1")
ONE_WAY = rs.marginals(SCHEMA, ways=1, name="one-way")
WORK = T1 + ONE_WAY
TARGETS = {"T1": rs.stddev(5), "one-way": rs.half_width(8, level=0.9)}
ALLOWED = np.concatenate([np.full(16, 25.0), np.full(10, float(rs.half_width(8, level=0.9).variances))])


@pytest.fixture(scope="module")
def plan() -> rs.Plan:
    return rs.plan(WORK, targets=TARGETS)


def test_what_is_released_meets_every_target_and_hardly_more(plan):
    ratios = plan.variances(WORK) / ALLOWED
    assert ratios.max() <= 1
    assert ratios.max() == pytest.approx(1, abs=1e-5)
    assert plan.targets.factor == pytest.approx(ratios.max(), abs=1e-12)


def test_the_least_privacy_is_proved_against_all_mechanisms(plan):
    assert plan.certificate.scope == "all mechanisms"
    assert plan.certificate.gap <= 1e-4
    cost = float(plan.budget.gaussian_cost())
    assert plan.targets.least <= plan.targets.needed <= cost <= plan.targets.least * (1 + 1e-4)
    assert plan.strategy.exact_cost() <= plan.budget.gaussian_cost()


@pytest.mark.parametrize(("cells", "cost"), [(4, 1.7586), (64, 4.4579)])
def test_prefix_sums_need_what_is_published(cells, cost):
    work = rs.table(rs.Schema.of_sizes([cells]), a0=rs.prefix)
    assert float(rs.plan(work, targets=1.0).budget.gaussian_cost()) == pytest.approx(cost, rel=2e-4)


def test_a_quarter_of_the_variance_costs_four_times_the_privacy(plan):
    strict = rs.plan(WORK, targets={"T1": rs.stddev(2.5), "one-way": rs.half_width(4, level=0.9)})
    ratio = float(strict.budget.gaussian_cost() / plan.budget.gaussian_cost())
    assert ratio == pytest.approx(4, rel=1e-4)


def test_a_person_with_three_records_needs_nine_times_the_cost(plan):
    three = rs.plan(WORK, targets=TARGETS, unit=rs.Unit(max_records=3))
    ratio = float(three.budget.gaussian_cost() / plan.budget.gaussian_cost())
    assert ratio == pytest.approx(9, rel=1e-5)
    assert (three.variances(WORK) <= ALLOWED).all()
    assert three.targets.least == pytest.approx(9 * plan.targets.least, rel=1e-4)


def test_replacing_a_record_meets_the_targets_too_and_proves_a_bound():
    swapped = rs.plan(WORK, targets=TARGETS, unit=rs.Unit(neighbours="replace_one"))
    assert (swapped.variances(WORK) <= ALLOWED).all()
    assert 0 < swapped.targets.least < swapped.targets.needed
    assert swapped.certificate.lower_bound * swapped.targets.needed == pytest.approx(swapped.targets.least)
    assert "no mechanism could" in swapped.explain()


def test_a_large_budget_meets_the_targets_by_one_common_factor(plan):
    budget = rs.privacy_cost(3 * plan.budget.gaussian_cost())
    wide = rs.plan(WORK, budget, targets=TARGETS)
    assert wide.budget == budget
    assert wide.targets.factor == pytest.approx(1 / 3, rel=1e-4)
    assert (wide.variances(WORK) <= wide.targets.factor * ALLOWED * (1 + 1e-12)).all()
    assert wide.certificate.lower_bound == pytest.approx(1 / 3, rel=1e-4)
    assert wide.targets.needed == pytest.approx(float(plan.budget.gaussian_cost()), rel=1e-5)


def test_the_budget_that_was_needed_is_enough(plan):
    assert rs.plan(WORK, plan.budget, targets=TARGETS).targets.factor <= 1


def test_a_budget_that_cannot_meet_the_targets_is_refused_with_the_factor(plan):
    half = rs.privacy_cost(plan.budget.gaussian_cost() / 2)
    needed = f"{float(plan.budget.gaussian_cost()):.4g}"
    with pytest.raises(rs.Infeasible, match=rf"need {needed}, 2 times that: .* reach 2 times .*relax=True"):
        rs.plan(WORK, half, targets=TARGETS)
    relaxed = rs.plan(WORK, half, targets=TARGETS, relax=True)
    assert relaxed.targets.factor == pytest.approx(2, rel=1e-4)
    assert "RELAXED: at this budget variances reach 2 times" in relaxed.explain()


def test_prices_add_up_and_a_laxer_target_saves_at_most_what_they_say(plan):
    lines = {line.name: line for line in plan.targets.met}
    assert sum(line.share for line in lines.values()) == pytest.approx(1)
    before = float(plan.budget.gaussian_cost())
    for name, extra in (("T1", 0.1), ("one-way", 0.1), ("T1", 1.0)):
        laxer = {key: rs.variance(float(target.variances)) for key, target in TARGETS.items()}
        laxer[name] = rs.variance(float(laxer[name].variances) * (1 + extra))
        after = float(rs.plan(WORK, targets=laxer).budget.gaussian_cost())
        saved = 1 - after / before
        assert saved <= lines[name].saving(extra) + 2e-4
        if extra == 0.1:
            assert saved >= 0.5 * lines[name].saving(extra) - 2e-4


def test_a_target_that_nothing_needs_has_no_price():
    plan = rs.plan(WORK, targets={"T1": 25, "one-way": 1e6})
    lines = {line.name: line for line in plan.targets.met}
    assert lines["T1"].binds
    assert not lines["one-way"].binds
    assert [line.name for line in plan.targets.met if line.binds] == ["T1"]
    assert "nothing" in plan.explain()


def test_a_product_with_one_target_is_solved_factor_by_factor():
    schema = rs.Schema.of_sizes([60, 40])
    work = rs.table(schema, {"a0": rs.prefix, "a1": rs.prefix}, name="both")
    plan = rs.plan(work, targets=4.0)
    costs = [
        float(rs.plan(rs.table(schema, {name: rs.prefix}), targets=1.0).budget.gaussian_cost())
        for name in ("a0", "a1")
    ]
    assert plan.certificate.scope == "all mechanisms"
    assert float(plan.budget.gaussian_cost()) == pytest.approx(costs[0] * costs[1] / 4, rel=2e-4)
    assert plan.variances(work).max() <= 4


def test_equal_tables_with_different_targets_cost_what_the_strictest_needs():
    both = rs.plan(
        T1 + rs.table(SCHEMA, {"age": rs.prefix, "sex": rs.identity}, name="lax"),
        targets={"T1": 25, "lax": 50},
    )
    alone = rs.plan(T1, targets=25)
    assert float(both.budget.gaussian_cost()) == pytest.approx(float(alone.budget.gaussian_cost()), rel=1e-4)
    assert [line.share for line in both.targets.met] == [1.0, 0.0]


def test_a_figure_for_each_query_is_met():
    queries = np.random.default_rng(0).integers(-2, 3, (12, 16)).astype(float)
    work = rs.linear(SCHEMA, ["age", "sex"], queries, name="odd")
    allowed = np.linspace(1, 12, 12)
    plan = rs.plan(work, targets={"odd": rs.variance(allowed)})
    assert (plan.variances(work) <= allowed).all()
    assert plan.certificate.gap <= 1e-4


def test_the_least_largest_variance_is_proved():
    plan = rs.plan(WORK, rs.privacy_cost(2), objective="max_variance")
    largest = plan.variances(WORK).max()
    assert plan.max_variance == pytest.approx(largest)
    assert plan.certificate.lower_bound <= largest <= plan.certificate.lower_bound * (1 + 1e-4)
    assert largest < rs.plan(WORK, rs.privacy_cost(2)).max_variance
    needed = rs.plan(WORK, targets=largest)
    assert float(needed.budget.gaussian_cost()) == pytest.approx(2, rel=2e-4)
    assert "largest weighted variance" in plan.explain()


def test_weights_tilt_the_largest_variance():
    work = 4.0 * T1 + ONE_WAY
    plan = rs.plan(work, rs.privacy_cost(1), objective="max_variance")
    weighted = plan.variances(work) * np.concatenate([np.full(16, 4.0), np.ones(10)])
    assert plan.certificate.lower_bound <= weighted.max() <= plan.certificate.lower_bound * (1 + 1e-4)


def test_rescaling_keeps_the_targets_in_mind(plan):
    double = plan.rescale(rs.privacy_cost(2 * plan.budget.gaussian_cost()))
    assert double.targets.factor == pytest.approx(0.5, rel=1e-5)
    assert double.targets.needed == pytest.approx(plan.targets.needed, rel=1e-5)
    assert double.certificate.gap == pytest.approx(plan.certificate.gap, abs=1e-6)
    worst = rs.plan(WORK, rs.privacy_cost(1), objective="max_variance")
    halved = worst.rescale(rs.privacy_cost(2))
    assert halved.certificate.lower_bound == pytest.approx(worst.certificate.lower_bound / 2)
    assert halved.certificate.gap == pytest.approx(worst.certificate.gap, abs=1e-6)


def test_a_saved_plan_knows_its_targets(plan, tmp_path):
    plan.save(tmp_path / "a.plan")
    back = rs.Plan.load(tmp_path / "a.plan")
    assert back.hash == plan.hash
    assert back.explain() == plan.explain()
    assert back.certificate == plan.certificate
    assert back.targets.answers(TARGETS)
    assert not back.targets.answers({**TARGETS, "T1": rs.stddev(6)})
    assert not back.targets.answers(25)
    everything = rs.plan(T1, targets=rs.stddev(np.full(16, 5.0)))
    everything.save(tmp_path / "b.plan")
    assert rs.Plan.load(tmp_path / "b.plan").targets.answers(rs.stddev(np.full(16, 5.0)))


def test_a_plan_without_targets_has_none_in_its_file():
    plan = rs.plan(T1, rs.privacy_cost(1))
    assert plan.targets is None
    assert "targets" not in plan.content()[0]


def test_the_words_of_a_plan_tell_price_and_proof(plan):
    text = plan.explain()
    assert "stddev 5" in text
    assert "half-width 8 at 90%" in text
    assert "10% more variance saves" in text
    assert "meets them exactly; no mechanism could below" in text
    assert "common factor of the targets" in text


def test_a_release_of_such_a_plan_has_the_promised_errors(plan):
    people = {"age": [0, 3, 7, 7], "sex": ["F", "M", "F", "F"]}
    release = rs.measure(plan, people, ledger=None, noise=rs.simulated(seed=1))
    stddev = release.answers().column("stddev").to_numpy()
    assert (stddev**2 <= ALLOWED).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"targets": 1, "objective": "max_variance"}, "targets already say what matters"),
        ({"targets": 1, "method": "identity"}, "method 'identity' does not plan for the accuracy of each"),
        ({"objective": "max_variance"}, "needs a budget second"),
        ({}, "or targets="),
        ({"budget": rs.privacy_cost(1), "relax": True}, "relax and refine go with targets"),
        ({"budget": rs.pure_dp(1), "targets": 1}, "planned with Gaussian noise"),
        ({"targets": 1e-30}, "protects nobody; allow variances .* times as large"),
        ({"targets": 1e60}, "64-bit integers do not hold it; ask for variances .* times smaller"),
        (
            {"targets": 1, "unit": rs.Unit(neighbours="replace_one"), "work": rs.marginals(SCHEMA, ways=0)},
            "replacing one record cannot change",
        ),
    ],
)
def test_wishes_that_contradict_each_other_are_refused(arguments, words):
    with pytest.raises((rs.WorkloadError, rs.BudgetError, rs.Infeasible), match=words):
        rs.plan(**{"work": T1, **arguments})


@pytest.mark.parametrize(
    "objective", ["max_variance", lambda variances: variances["total"]], ids=["max", "loss"]
)
def test_what_replacing_a_record_cannot_change_is_refused_whatever_the_objective(objective):
    unit = rs.Unit(neighbours="replace_one")
    with pytest.raises(rs.Infeasible, match="replacing one record cannot change"):
        rs.plan(rs.marginals(SCHEMA, ways=0), rs.privacy_cost(1), unit=unit, objective=objective)


def test_a_table_too_long_to_go_through_cannot_have_a_target_for_each_query():
    work = rs.table(rs.Schema.of_sizes([40]), a0=rs.predicates)
    with pytest.raises(rs.ResiduaError):
        rs.plan(work, targets=100.0)


def test_a_refined_plan_costs_no_more_and_leaves_the_other_cells_more_room():
    schema = rs.Schema.of_sizes([3])
    work = rs.table(schema, a0=rs.identity)
    plain = rs.plan(work, targets=[1.0, 0.5, 8.0])
    fine = rs.plan(work, targets=[1.0, 0.5, 8.0], refine=True)
    assert float(fine.budget.gaussian_cost()) == pytest.approx(float(plain.budget.gaussian_cost()), rel=1e-4)
    np.testing.assert_allclose(1 / fine.variances(work), [1.0, 2.0, 0.125], rtol=1e-4)
    np.testing.assert_allclose(fine.spare().reshape(-1), [1.0, 0.0, 1.875], atol=1e-3)
    assert (fine.spare() >= plain.spare() - 1e-3).all()


def test_a_free_query_leaves_the_cost_as_it_is():
    schema = rs.Schema.of_sizes([3, 2])
    work = rs.table(schema, ["a0"])
    plan = rs.plan(work, targets=[1.0, 0.5, 8.0], refine=True)
    np.testing.assert_allclose(plan.free_variances(work)[[0, 2]], [1.0, 1 / 1.875], rtol=1e-3)
    assert plan.free_variances(work)[1] > 1e4
    assert plan.free_variances(rs.table(schema, ["a1"])).min() == np.inf
    profile = float(plan.budget.gaussian_cost()) - plan.spare()
    query = np.array([1.0, 0.0, -1.0])
    variance = plan.free_variances(rs.linear(schema, ["a0"], query[None, :]))[0]
    assert (profile + query**2 / variance).max() == pytest.approx(float(plan.budget.gaussian_cost()))


@pytest.mark.parametrize("method", ["querysmasher", "hdmm-union", "hdmm-marginals"])
def test_every_plan_on_few_cells_knows_what_they_have_left(method):
    schema = rs.Schema.of_sizes([3, 2])
    plan = rs.plan(rs.all_tables(schema, (0, 1, 2), rs.prefix), rs.privacy_cost(1), method=method)
    costs = np.zeros(schema.sizes)
    for batch in plan.batches:
        for subset, owner in zip(batch.subsets.tolist(), batch.owners.tolist(), strict=True):
            squares = np.array([float(batch.multiplier) ** 2])
            for matrix in batch.matrices:
                squares = np.kron(squares, np.sum(matrix.astype(float) ** 2, axis=0))
            costs += _over_cells(squares, subset, schema.sizes) / float(batch.parameters[owner])
    np.testing.assert_allclose(plan.spare(), costs.max() - costs, atol=1e-6)
    with pytest.raises(rs.WorkloadError, match="too many to list what each has left"):
        rs.plan(rs.marginals(rs.Schema.of_sizes([1001, 1000]), ways=1), rs.privacy_cost(1)).spare()


def _over_cells(values, subset, sizes):
    """Values of the cells of some attributes, in this order, over all cells."""
    own = values.reshape([sizes[at] for at in subset]).transpose(np.argsort(subset))
    return own.reshape([size if at in subset else 1 for at, size in enumerate(sizes)])


def pair_costs(plan):
    """What replacing a record of any joint cell by one of any other costs, from what the plan measures."""
    (batch,) = plan.batches
    rows = np.ones((1, 1))
    for matrix in batch.matrices:
        rows = np.kron(rows, matrix)
    rows = rows * batch.multiplier / np.sqrt(float(batch.parameters[0]))
    return np.sum((rows[:, :, None] - rows[:, None, :]) ** 2, axis=0)


REPLACED_WORKS = {
    "counts": rs.table(rs.Schema.of_sizes([4, 3]), ["a0"]),
    "prefixes": rs.table(rs.Schema.of_sizes([4, 3]), {"a0": rs.prefix}),
    "uneven": rs.linear(rs.Schema.of_sizes([4, 3]), ["a0"], [[1, 0, 0, 0], [0, 2, 0, 0], [1, 1, 1, 0]]),
}


@pytest.mark.parametrize("name", REPLACED_WORKS)
@pytest.mark.parametrize("records", [1, 3])
def test_under_replacement_a_free_query_leaves_the_dearest_pair_as_it_is(name, records):
    work = REPLACED_WORKS[name]
    plan = rs.plan(work, rs.privacy_cost(5), unit=rs.Unit(records, "replace_one"), method="dense")
    pairs = pair_costs(plan)
    most = pairs.max()
    assert most * records**2 == pytest.approx(5)
    np.testing.assert_allclose(plan.spare(), (most - pairs.max(axis=1)) * records**2, atol=1e-9)
    queries = np.array([[1, 0, 0, 0], [1, -1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 1], [3, 2, 1, 0]])
    free = plan.free_variances(rs.linear(plan.schema, ["a0"], queries))
    for query, variance in zip(queries, free, strict=True):
        if variance < 1e9:
            more = (query[:, None] - query[None, :]) ** 2
            assert (pairs + more / variance).max() == pytest.approx(most)
            assert (pairs + more / (0.9 * variance)).max() > most * (1 + 1e-9)
        else:
            dearest = pairs > most * (1 - 1e-6)
            assert np.any(dearest & (query[:, None] != query[None, :]))
    total = rs.table(plan.schema) + rs.table(plan.schema, a1=rs.total)
    assert plan.free_variances(total).tolist() == [0.0, 0.0]  # replacing a record does not change it
    assert np.all(plan.free_variances(rs.table(plan.schema, ["a1"])) > 1e9)


def test_a_query_on_other_attributes_is_free_where_it_asks_nothing_of_the_dearest_cell():
    schema = rs.Schema.of_sizes([3, 2])
    plan = rs.plan(rs.table(schema, ["a0"]), targets=[1.0, 0.5, 8.0], refine=True)
    free = plan.free_variances(rs.table(schema, ["a1", "a0"])).reshape(2, 3)
    np.testing.assert_allclose(free[:, [0, 2]], np.broadcast_to([1.0, 1 / 1.875], (2, 2)), rtol=1e-3)
    alone = plan.free_variances(rs.table(schema, ["a0"]))
    np.testing.assert_array_equal(plan.free_variances(rs.table(schema, a0=rs.identity, a1=rs.total)), alone)


def test_what_replacing_leaves_is_not_listed_of_too_many_pairs():
    work = rs.table(rs.Schema.of_sizes([60, 60]), ["a0", "a1"])
    plan = rs.plan(work, rs.zcdp(1), unit=rs.Unit(neighbours="replace_one"), method="dense")
    with pytest.raises(rs.WorkloadError, match="3,600 cells are too many to compare"):
        plan.spare()


def test_many_tables_are_planned_by_blocks():
    schema = rs.Schema.of_sizes([5] * 12)
    work = rs.marginals(schema, up_to=2)
    plan = rs.plan(work, targets=9.0)
    assert plan.variances(work).max() <= 9
    assert plan.certificate.gap <= 1e-3
    with pytest.raises(rs.WorkloadError, match="refine is for workloads on few cells"):
        rs.plan(work, targets=9.0, refine=True)


def test_a_loss_of_ones_own_is_planned_and_proved():
    cp = pytest.importorskip("cvxpy", reason="platform: cvxpy is an optional package")
    work = rs.marginals(rs.Schema.of_sizes([4, 3, 2]), ways=1, name="one")
    work += rs.marginals(rs.Schema.of_sizes([4, 3, 2]), ways=2, name="two")
    plan = rs.plan(work, rs.privacy_cost(2), objective=lambda v: cp.maximum(v["one"], v["two"] / 2))
    means = {name: plan.variances(work.select(name)).mean() for name in ("one", "two")}
    value = max(means["one"], means["two"] / 2)
    assert plan.certificate.lower_bound <= value <= plan.certificate.lower_bound * (1 + 1e-4)
    assert plan.objective == "loss"
    assert plan.rescale(rs.privacy_cost(1)).certificate.lower_bound == 0
    with pytest.raises(rs.WorkloadError, match="not plan for a loss of your own"):
        rs.plan(work, rs.privacy_cost(2), objective=lambda v: v["one"], method="dense")
    with pytest.raises(rs.WorkloadError, match="falls where a variance grows"):
        rs.plan(work, rs.privacy_cost(2), objective=lambda v: -v["one"])


@pytest.mark.parametrize("method", ["residualplanner", "smasher", "querysmasher"])
def test_the_largest_variance_of_marginals_is_the_same_by_every_method_of_blocks(method):
    work = rs.marginals(rs.Schema.of_sizes([4, 3, 2]), up_to=2)
    best = rs.plan(work, rs.privacy_cost(1), objective="max_variance")
    found = rs.plan(work, rs.privacy_cost(1), objective="max_variance", method=method)
    assert found.max_variance == pytest.approx(best.max_variance, rel=1e-4)
    assert found.certificate.scope == "all mechanisms"


@pytest.mark.parametrize("asked", [{"targets": 5.0}, {"objective": "max_variance"}])
def test_residualplanner_refuses_all_but_marginals_whatever_is_asked(asked):
    work = rs.table(rs.Schema.of_sizes([4, 3]), a0=rs.prefix)
    with pytest.raises(rs.WorkloadError, match="plans marginals only"):
        rs.plan(work, rs.privacy_cost(1), method="residualplanner", **asked)
