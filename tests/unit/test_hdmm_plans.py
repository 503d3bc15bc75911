"""Plans for pure DP and HDMM's strategies for either noise, against dense twins over all cells."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from separate import separate_cost

import residua as rs
from residua.errors import BudgetError, NotInSpan, WorkloadError
from residua.kernel.cost import added_cost
from residua.methods.registry import methods_for
from residua.noise import DiscreteLaplace
from residua.privacy.budgets import interval_margin

SCHEMA = rs.Schema(a=rs.Integer(0, 4), b=rs.Categorical("F", "M"), c=rs.Integer(0, 3))
CODES = np.random.default_rng(5).integers(0, [5, 2, 4], (60, 3))
WORKS = {
    "one": rs.table(SCHEMA, a=rs.prefix),
    "product": rs.table(SCHEMA, {"a": rs.ranges, "c": rs.identity}),
    "marginals": rs.marginals(SCHEMA, up_to=2),
    "prefixes": rs.all_tables(SCHEMA, (1, 2), numeric=rs.prefix, categorical=rs.identity),
    "mixed": rs.table(SCHEMA, {"a": rs.prefix, "b": rs.identity})
    + 3.0 * rs.table(SCHEMA, {"a": rs.identity, "c": rs.ranges}, name="heavy")
    + rs.table(SCHEMA, {"b": rs.identity, "c": rs.prefix}),
    "joint": rs.table(SCHEMA, {("a", "c"): rs.affine}) + rs.table(SCHEMA, ["b"]),
    # Strategies of fewer rows than there are classes of cells (claim H-005).
    "sums": rs.table(SCHEMA, {("a", "c"): rs.affine}, name="affine") + rs.marginals(SCHEMA, ways=2),
    "overlapping": rs.linear(
        SCHEMA, ["a"], [[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 1]]
    )
    + rs.table(SCHEMA, {"b": rs.identity, "c": rs.prefix}),
}
METHODS = ["hdmm", "hdmm-kron", "hdmm-union", "hdmm-marginals", "identity", "eigen"]
BUDGETS = {"pure": rs.pure_dp(1), "gaussian": rs.zcdp("0.5")}


def rows_of(group):
    """A table's queries over all cells of the schema."""
    tensors = [factor.queries.matrix().reshape(-1, *factor.queries.sizes) for factor in group.factors]
    order = [at for factor in group.factors for at in factor.attributes]
    result = np.ones(())
    for tensor in tensors:
        result = np.multiply.outer(result, tensor)
    counts, axes, at = [], [], 0
    for tensor in tensors:
        counts.append(at)
        axes += range(at + 1, at + tensor.ndim)
        at += tensor.ndim
    flat = result.transpose(*counts, *axes).reshape(group.count, *(SCHEMA.sizes[each] for each in order))
    flat = flat.transpose(0, *(1 + np.argsort(order)))
    shape = [SCHEMA.sizes[each] if each in order else 1 for each in range(3)]
    flat = np.broadcast_to(flat.reshape(group.count, *shape), (group.count, *SCHEMA.sizes))
    return flat.reshape(group.count, -1)


def measured(plan):
    """Every measured row over all cells, with the true variance of its noise and what its law costs."""
    rows, variances, scales = [], [], []
    for batch in plan.batches:
        whole = np.ones((1, 1)) * batch.multiplier
        for matrix in batch.matrices:
            whole = np.kron(whole, matrix)
        for attributes, owner in zip(batch.subsets.tolist(), batch.owners.tolist(), strict=True):
            tensor = whole.reshape(len(whole), *(SCHEMA.sizes[at] for at in attributes))
            tensor = tensor.transpose(0, *(1 + np.argsort(attributes)))
            shape = [SCHEMA.sizes[at] if at in attributes else 1 for at in range(3)]
            tensor = np.broadcast_to(tensor.reshape(len(whole), *shape), (len(whole), *SCHEMA.sizes))
            rows.append(tensor.reshape(len(whole), -1))
            law = batch.laws()[owner]
            variances += [law.variance] * len(whole)
            scales += [law.parameter] * len(whole)
    return np.concatenate(rows), np.array(variances), scales


OTHERS = ["hierarchical", "hb", "wavelet", "greedy", "datacube", "workload"]
CASES = [
    (name, method, budget)
    for name in WORKS
    for method in METHODS
    for budget in BUDGETS
    if not (name == "joint" and method == "identity")
] + [("marginals", method, budget) for method in OTHERS for budget in BUDGETS]


@pytest.fixture(scope="module")
def plans():
    known = {}

    def find(name, method, budget):
        if (name, method, budget) not in known:
            known[name, method, budget] = rs.plan(WORKS[name], BUDGETS[budget], method=method)
        return known[name, method, budget]

    return find


@pytest.mark.parametrize(("name", "method", "budget"), CASES)
def test_predicted_variances_are_those_of_least_squares_over_all_measurements(plans, name, method, budget):
    plan = plans(name, method, budget)
    rows, variances, _ = measured(plan)
    square = np.linalg.pinv((rows / variances[:, None]).T @ rows, rcond=1e-11)
    asked = np.concatenate([rows_of(group) for group in WORKS[name].groups()])
    expected = np.einsum("qi,ij,qj->q", asked, square, asked)
    assert plan.variances(WORKS[name]) == pytest.approx(expected, rel=1e-5)
    weights = np.concatenate([np.full(group.count, group.weight) for group in WORKS[name].groups()])
    assert plan.total_variance == pytest.approx(float(weights @ expected), rel=1e-5)
    assert plan.max_variance == pytest.approx(expected.max(), rel=1e-5)


@pytest.mark.parametrize(("name", "method", "budget"), CASES)
def test_answers_are_those_of_least_squares_over_all_measurements(plans, name, method, budget):
    plan = plans(name, method, budget)
    release = rs.measure(plan, CODES, ledger=None, noise=rs.simulated(seed=2))
    rows, variances, _ = measured(plan)
    values = np.concatenate([part.reshape(-1) for part in release.measurements.values])
    weights = 1 / np.sqrt(variances)
    estimate = np.linalg.pinv(rows * weights[:, None], rcond=1e-9) @ (values * weights)
    asked = np.concatenate([rows_of(group) for group in WORKS[name].groups()])
    assert release.values() == pytest.approx(asked @ estimate, abs=1e-4 * plan.rmse)


@pytest.mark.parametrize(("name", "method"), [(name, method) for name, method, b in CASES if b == "pure"])
def test_no_record_costs_more_than_epsilon_and_the_worst_costs_it_all(plans, name, method):
    plan = plans(name, method, "pure")
    rows, _, scales = measured(plan)
    whole = np.abs(np.rint(rows)).astype(object)
    costs = [sum(Fraction(int(e)) / s for e, s in zip(column, scales, strict=True)) for column in whole.T]
    assert max(costs) <= added_cost(plan.batches) <= 1
    assert separate_cost(plan.batches, replaced=False) == plan.strategy.exact_cost()
    assert float(added_cost(plan.batches)) > 1 - 1e-9
    assert plan.privacy.pure_epsilon == 1
    assert plan.privacy.cost is None


@pytest.mark.parametrize("name", WORKS)
def test_hdmm_is_the_best_of_its_kinds(plans, name):
    best = plans(name, "hdmm", "pure").ideal.total_variance
    for method in ("hdmm-kron", "hdmm-marginals", "hdmm-union", "eigen"):
        assert best <= plans(name, method, "pure").ideal.total_variance * (1 + 1e-9)


@pytest.mark.parametrize("name", WORKS)
def test_no_plan_is_below_the_bound_it_states(plans, name):
    for method in METHODS:
        if not (name == "joint" and method == "identity"):
            plan = plans(name, method, "pure")
            assert plan.total_variance >= plan.certificate.lower_bound
            assert plan.certificate.scope == "all Laplace noise"


@pytest.mark.parametrize("method", ["hdmm-kron", "hdmm-union", "hdmm-marginals"])
def test_saved_plans_and_releases_come_back_the_same(plans, method, tmp_path):
    plan = plans("mixed", method, "pure")
    plan.save(tmp_path / "x.plan")
    loaded = rs.Plan.load(tmp_path / "x.plan")
    assert loaded.hash == plan.hash
    assert np.array_equal(loaded.variances(WORKS["mixed"]), plan.variances(WORKS["mixed"]))
    release = rs.measure(loaded, CODES, ledger=None, noise=rs.simulated(seed=4))
    release.save(tmp_path / "x.release")
    assert np.array_equal(rs.Release.load(tmp_path / "x.release").values(), release.values())
    assert release.audit["noise"] == "discrete laplace"


@pytest.mark.parametrize("method", ["hdmm-kron", "hdmm-union", "hdmm-marginals", "identity"])
def test_rescaling_to_twice_the_epsilon_about_quarters_every_variance(plans, method):
    plan = plans("mixed", method, "pure").rescale(rs.pure_dp("0.01"))
    twice = plan.rescale(rs.pure_dp("0.02"))
    assert twice.variances(WORKS["mixed"]) == pytest.approx(plan.variances(WORKS["mixed"]) / 4, rel=1e-3)
    assert added_cost(twice.batches) <= Fraction(2, 100)
    assert twice.certificate.gap == pytest.approx(plan.certificate.gap, rel=1e-2)


def test_rescaling_cannot_change_the_law(plans):
    with pytest.raises(BudgetError, match="laplace noise, which cannot be rescaled to zcdp"):
        plans("one", "hdmm", "pure").rescale(rs.zcdp(1))
    with pytest.raises(BudgetError, match="gaussian noise, which cannot be rescaled to pure_dp"):
        plans("one", "hdmm", "gaussian").rescale(rs.pure_dp(1))


@pytest.mark.parametrize("method", ["hdmm-kron", "hdmm-union", "hdmm-marginals"])
@pytest.mark.parametrize("budget", BUDGETS)
def test_replacing_a_record_costs_no_more_than_the_budget(method, budget):
    unit = rs.Unit(neighbours="replace_one")
    plan = rs.plan(WORKS["mixed"], BUDGETS[budget], method=method, unit=unit)
    rows, variances, scales = measured(plan)
    pairs = [(i, j) for i in range(rows.shape[1]) for j in range(i)]
    if budget == "pure":
        per_row = np.array([float(1 / scale) for scale in scales])
        worst = max(float(np.abs(rows[:, i] - rows[:, j]) @ per_row) for i, j in pairs)
        assert worst <= 1 + 1e-9
    else:
        worst = max(float((rows[:, i] - rows[:, j]) ** 2 @ (1 / variances)) for i, j in pairs)
        assert worst <= float(unit.record_cost(BUDGETS[budget])) * (1 + 1e-9)
    assert rs.measure(plan, CODES, ledger=None, noise=rs.simulated(1)).values().shape == (
        WORKS["mixed"].count,
    )


def test_a_person_with_three_records_gets_three_times_the_scale(plans):
    one = plans("one", "hdmm", "pure")
    three = rs.plan(WORKS["one"], rs.pure_dp(1), method="hdmm", unit=rs.Unit(max_records=3))
    assert three.ideal.rmse == pytest.approx(3 * one.ideal.rmse)
    assert added_cost(three.batches) <= Fraction(1, 3)


def test_plain_counts_get_integer_noise_that_is_narrower_than_real_noise():
    plan = rs.plan(rs.marginals(SCHEMA, ways=1), rs.pure_dp(2), method="identity")
    scale = plan.batches[0].parameters[0]
    assert scale == Fraction(1, 2)
    assert plan.strategy.single()[2] == pytest.approx(DiscreteLaplace(scale).variance)
    assert plan.rmse < plan.ideal.rmse


@pytest.mark.parametrize("epsilon", ["0.1", "1", "5", "10"])
@pytest.mark.parametrize("work", ["one", "marginals", "joint"])
def test_auto_is_never_worse_than_plain_cells(work, epsilon):
    budget = rs.pure_dp(epsilon)
    plain = rs.plan(WORKS[work], budget, method="identity")
    assert rs.plan(WORKS[work], budget).total_variance <= plain.total_variance


@pytest.mark.parametrize("method", ["smasher", "dense", "residualplanner"])
def test_methods_for_gaussian_noise_are_refused_for_pure_dp(method):
    with pytest.raises(WorkloadError, match="with laplace noise, which pure_dp"):
        rs.plan(WORKS["one"], rs.pure_dp(1), method=method)


def test_a_plan_whose_noise_is_not_that_of_its_budget_is_not_measured(plans):
    forged = replace(plans("one", "hdmm", "gaussian"), budget=rs.pure_dp(1000))
    with pytest.raises(BudgetError, match="cannot keep to the pure_dp"):
        rs.measure(forged, CODES, ledger=None, noise=rs.simulated(1))


def test_a_forged_share_cannot_buy_less_noise(plans):
    plan = plans("mixed", "hdmm-marginals", "pure")
    layers = plan.strategy.layers
    dear = tuple(replace(each, shares=2 * each.shares, costs=2 * each.costs) for each in layers)
    forged = replace(plan, strategy=replace(plan.strategy, layers=dear))
    with pytest.raises(BudgetError, match=r"what their noise does not keep|would spend more"):
        rs.measure(forged, CODES, ledger=None, noise=rs.simulated(1))


@pytest.mark.parametrize("method", ["hdmm-kron", "hdmm-union", "hdmm-marginals"])
@pytest.mark.parametrize("budget", BUDGETS)
def test_queries_that_nothing_measures_are_refused(method, budget):
    narrow = rs.table(SCHEMA, ["a"]) + rs.table(SCHEMA, ["b"])
    plan = rs.plan(narrow, BUDGETS[budget], method=method)
    wide = rs.table(SCHEMA, ["a", "c"])
    with pytest.raises((NotInSpan, WorkloadError)):
        plan.variances(wide)


def test_covariances_of_unions_are_those_of_least_squares(plans):
    for method in ("hdmm-union", "hdmm-marginals"):
        plan = plans("mixed", method, "pure")
        rows, variances, _ = measured(plan)
        square = np.linalg.pinv((rows / variances[:, None]).T @ rows, rcond=1e-11)
        asked = np.concatenate([rows_of(group) for group in WORKS["mixed"].groups()])
        found = plan.covariance(WORKS["mixed"], WORKS["mixed"])
        assert found == pytest.approx(asked @ square @ asked.T, abs=1e-5 * plan.max_variance)


def test_explanations_name_what_is_measured(plans):
    text = plans("mixed", "hdmm-union", "pure").explain()
    assert "Pure DP: epsilon = 1" in text
    assert "independent Laplace noise" in text
    assert "queries on" in text


def test_large_epsilons_are_planned_and_measured():
    plan = rs.plan(WORKS["marginals"], rs.pure_dp(50))
    release = rs.measure(plan, CODES, ledger=None, noise=rs.simulated(1))
    exact = rs.measure(plan.rescale(rs.pure_dp(500)), CODES, ledger=None, noise=rs.simulated(1))
    assert release.values() == pytest.approx(exact.values(), abs=1.0)
    assert plan.rmse < 1e-2


def test_auto_is_hdmm_for_pure_dp(plans):
    assert rs.plan(WORKS["mixed"], rs.pure_dp(1)).rmse == plans("mixed", "hdmm", "pure").rmse


def test_every_method_for_pure_dp_is_in_the_list():
    assert {"auto", "hdmm", "hdmm-kron", "hdmm-union", "hdmm-marginals"} <= set(methods_for("laplace"))
    assert {"identity", "hierarchical", "hb", "wavelet", "greedy", "eigen", "datacube", "workload"} <= set(
        methods_for("laplace")
    )


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_intervals_cover_sums_of_laplace_noise_as_often_as_they_say(level):
    """Coverage of sums of k equal Laplace numbers, by the gamma law of their half-sums (claim H-004)."""
    margin = interval_margin("laplace", level)
    random = np.random.default_rng(0)
    for count in (1, 2, 3, 5, 20):
        sums = random.laplace(size=(400_000, count)).sum(axis=1) / math.sqrt(2 * count)
        covered = np.mean(np.abs(sums) <= margin)
        assert covered >= level - 4e-3


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("method", ["hdmm", "hdmm-kron", "hdmm-union", "hdmm-marginals", "eigen"])
@pytest.mark.parametrize("rows", [3, 16])
def test_what_is_ideal_is_near_what_is_released_for_any_queries(method, budget, rows):
    """Queries of which the total is no combination: what a strategy says of it must not drown the rest."""
    schema = rs.Schema.of_sizes([20])
    for seed in (0, 2):
        queries = np.random.default_rng(seed).normal(size=(rows, 20))
        plan = rs.plan(rs.linear(schema, ["a0"], queries), BUDGETS[budget], method=method)
        assert plan.ideal.total_variance == pytest.approx(plan.total_variance, rel=0.1)
        assert plan.ideal.rmse == pytest.approx(plan.rmse, rel=0.1)


@pytest.mark.parametrize("budget", [rs.zcdp(1), rs.pure_dp(1)])
def test_the_number_of_records_may_be_asked_for_twice(budget):
    schema = rs.Schema.of_sizes([3, 2])
    work = rs.table(schema, name="T1") + rs.table(schema, name="T2") + rs.table(schema, ["a0", "a1"])
    assert rs.plan(work, budget, method="hdmm-union").rmse > 0
