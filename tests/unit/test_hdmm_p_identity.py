"""OPT_0 for Laplace noise: values, gradients, cells that are alike (claims H-010 and H-011)."""

import numpy as np
import pytest
from scipy.optimize import check_grad

import residua as rs
from residua.linalg.matrices import along_axes
from residua.methods.hdmm.demand import Kernel, chain_of
from residua.methods.hdmm.kron import joint
from residua.methods.hdmm.marginals import weighted_terms
from residua.methods.hdmm.p_identity import evaluated, opt0, p_identity
from residua.methods.hdmm.products import Around
from residua.workload.explicit import Explicit
from residua.workload.intervals import Prefix, Ranges, Width


def direct(gram, matrix):
    return float(np.trace(gram @ np.linalg.pinv(matrix.T @ matrix)))


@pytest.mark.parametrize("p", [0, 1, 3, 7])
def test_values_are_those_of_a_dense_inverse(p):
    weights = np.random.default_rng(p).random((p, 6))
    gram = Ranges(6).gram()
    assert evaluated(gram, weights)[0] == pytest.approx(direct(gram, p_identity(weights)))


def test_gradients_are_those_of_finite_differences():
    gram, start = Prefix(5).gram(), np.random.default_rng(1).random((2, 5))

    def value(flat):
        return evaluated(gram, flat.reshape(2, 5))[0]

    def gradient(flat):
        return evaluated(gram, flat.reshape(2, 5))[1].reshape(-1)

    assert check_grad(value, gradient, start.reshape(-1)) < 1e-4 * abs(value(start.reshape(-1)))


@pytest.mark.parametrize("queries", [Prefix(1), Prefix(9), Ranges(9)])
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_grams_of_chains_are_multiplied_by_cumulative_sums(queries, seed):
    """In whatever order their cells come (claim H-013)."""
    mixed = (
        np.arange(queries.cells) if seed is None else np.random.default_rng(seed).permutation(queries.cells)
    )
    gram = queries.gram()[np.ix_(mixed, mixed)]
    chain = chain_of(gram)
    rows = np.random.default_rng(2).normal(size=(4, queries.cells))
    in_line = gram[np.ix_(chain.order, chain.order)]
    assert chain.times(rows) == pytest.approx(rows @ in_line)
    weights = np.abs(rows)
    plain, quick = evaluated(in_line, weights), evaluated(in_line, weights, chain.times)
    assert quick[0] == pytest.approx(plain[0])
    assert quick[1] == pytest.approx(plain[1])


def test_other_grams_are_no_chains():
    assert chain_of(Width(9, 3).gram()) is None
    assert chain_of(np.eye(4)) is None
    assert chain_of(np.zeros((3, 3))) is None


def test_the_order_of_cells_does_not_matter_to_ranges():
    gram = Ranges(40).gram()
    mixed = np.random.default_rng(0).permutation(40)
    found, again = opt0(gram, "laplace"), opt0(gram[np.ix_(mixed, mixed)], "laplace")
    assert again.value == pytest.approx(found.value, rel=1e-3)
    assert again.value == pytest.approx(direct(gram[np.ix_(mixed, mixed)], again.matrix))


def test_many_cells_reach_what_is_published():
    queries = Prefix(600)
    found = opt0(queries.gram(), "laplace")
    published = np.interp(np.log(600), np.log([256, 1024]), [7.35, 9.58])  # it prints these two
    assert np.sqrt(2 * found.value / queries.count) <= published
    assert np.abs(found.matrix).sum(axis=0) == pytest.approx(np.ones(600))


def test_many_cells_that_are_no_chain_start_from_sums_of_neighbours_too():
    queries = Width(600, 32)
    found = opt0(queries.gram(), "laplace")
    assert np.sqrt(2 * found.value / queries.count) <= 6.41  # printed for 1,024 cells, 6.34 for 256


def test_comparisons_within_runs_of_cells_are_planned_too():
    """Of which plain cells are the best strategy, as nothing is asked of whole runs."""
    pairs = np.kron(np.eye(272), np.array([[1.0, -1.0]]))
    gram = pairs.T @ pairs + 1e-30
    assert opt0(gram, "laplace").value <= 544


def test_products_are_multiplied_axis_by_axis():
    """The search over joint cells has the values and gradients of the dense gram (claim H-014)."""
    grams = [Prefix(4).gram(), Ranges(3).gram()]
    weights = np.random.default_rng(3).random((2, 12))
    plain = evaluated(np.kron(*grams), weights)
    quick = evaluated(np.kron(*grams), weights, lambda rows: along_axes(rows, grams))
    assert quick[0] == pytest.approx(plain[0])
    assert quick[1] == pytest.approx(plain[1])


@pytest.mark.parametrize(("size", "reached"), [(8, 5.550), (12, 7.347)])
def test_two_attributes_are_planned_over_their_joint_cells(size, reached):
    """Better than any product of strategies, or nested ones (claim H-014)."""
    schema = rs.Schema.of_sizes([size, size])
    plan = rs.plan(rs.table(schema, dict.fromkeys(schema.names, rs.prefix)), rs.pure_dp(1))
    assert plan.rmse <= reached


def test_joint_cells_are_planned_for_several_tables():
    """Whichever order their attributes come in, and never worse than the other ways."""
    schema = rs.Schema.of_sizes([4, 5, 3])
    a, b, c = schema.names
    work = rs.table(schema, {c: rs.prefix, a: rs.prefix}) + rs.table(schema, {b: rs.ranges})
    best = rs.plan(work, rs.pure_dp(1))
    assert best.rmse <= 1.0001 * min(
        rs.plan(work, rs.pure_dp(1), method=method).rmse for method in ("hdmm-kron", "hdmm-union", "identity")
    )
    draft = joint(work, "laplace")
    gram = sum(
        weight * np.kron(np.kron(one, two), three)
        for weight, one, two, three in (
            (1, Prefix(4).gram(), np.ones((5, 5)), Prefix(3).gram()),
            (1, np.ones((4, 4)), Ranges(5).gram(), np.ones((3, 3))),
        )
    )
    assert draft.total(work) == pytest.approx(2 * opt0(gram, "laplace").value)


def test_plain_counts_and_many_cells_are_not_planned_jointly():
    assert joint(rs.marginals(rs.Schema.of_sizes([3, 3]), ways=2), "laplace") is None
    schema = rs.Schema.of_sizes([40, 40])
    assert joint(rs.table(schema, dict.fromkeys(schema.names, rs.prefix)), "laplace") is None


@pytest.mark.parametrize("queries", [Prefix(24), Ranges(24)])
def test_every_column_sums_to_one_and_the_value_is_the_strategys(queries):
    found = opt0(queries.gram(), "laplace")
    assert np.abs(found.matrix).sum(axis=0) == pytest.approx(np.ones(24))
    assert found.value == pytest.approx(direct(queries.gram(), found.matrix))
    assert found.value < np.trace(queries.gram())  # plain cells


def test_the_same_gram_gets_the_same_strategy():
    gram = Prefix(20).gram()
    assert np.array_equal(opt0(gram, "laplace").matrix, opt0(gram, "laplace").matrix)


def test_multiples_of_a_gram_are_searched_once():
    gram, known = Prefix(20).gram(), {}
    found, again = opt0(gram, "laplace", known=known), opt0(3.7 * gram, "laplace", known=known)
    assert len(known) == 1
    assert again.matrix is found.matrix
    assert again.value == pytest.approx(3.7 * found.value)


def test_a_total_is_measured_once():
    found = opt0(np.ones((9, 9)), "laplace")
    assert np.array_equal(found.matrix, np.ones((1, 9)))
    assert found.value == pytest.approx(1)


def test_cells_that_all_queries_treat_alike_are_measured_together():
    rows = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0]], dtype=float)
    found = opt0(Explicit((6,), rows, None, None).gram(), "laplace")
    assert found.value == pytest.approx(2)  # two counts on disjoint cells cost no more than one
    assert not found.matrix[:, 5].any()  # nobody asks about the last cell


def test_cells_alike_with_totals_get_the_best_weight_of_the_total():
    cells = 100
    gram = np.eye(cells) + 1.0

    def mixed(part):
        return direct(gram, np.concatenate([(1 - part) * np.eye(cells), np.full((1, cells), part)]))

    best = min(mixed(part) for part in np.linspace(0.01, 0.9, 90))
    assert opt0(gram, "laplace").value <= best * (1 + 1e-6)


@pytest.mark.parametrize(("family", "published"), [(Prefix, 5.32), (Ranges, 5.55)])
def test_published_errors_are_reached(family, published):
    queries = family(64)
    found = opt0(queries.gram(), "laplace")
    assert np.sqrt(2 * found.value / queries.count) <= published + 0.005


def test_gaussian_noise_gets_the_certified_optimum():
    queries = Prefix(16)
    found = opt0(queries.gram(), "gaussian")
    assert (found.matrix**2).sum(axis=0).max() == pytest.approx(1)
    assert found.value == pytest.approx(direct(queries.gram(), found.matrix))
    assert found.value < opt0(queries.gram(), "laplace").value


@pytest.mark.parametrize("attribute", [0, 1])
def test_an_attribute_of_a_nested_strategy_has_the_right_gradient(attribute):
    """And its value at the weights in use is the strategy's own total (claim H-026)."""
    work = rs.all_tables(rs.Schema.of_sizes([6, 5, 3]), (1, 2), numeric=rs.prefix, categorical=rs.identity)
    random = np.random.default_rng(2)
    kernels = {}
    for at, size in enumerate((6, 5, 3)):
        weights = random.random((2, size))
        kernels[at] = Kernel.of(p_identity(weights), at, weights)
    strategy, value = weighted_terms(work, "laplace", kernels)
    around = Around.of(work, attribute, kernels, strategy)
    start = kernels[attribute].weights
    assert around.value(start)[0] == pytest.approx(value)

    def flat(numbers):
        return around.value(numbers.reshape(start.shape))[0]

    def slope(numbers):
        return around.value(numbers.reshape(start.shape))[1].reshape(-1)

    assert check_grad(flat, slope, start.reshape(-1)) < 1e-4 * value


def test_a_column_of_too_many_cells_is_named_before_any_work():
    work = rs.table(rs.Schema(speed=rs.Integer(0, 8_999)), speed=rs.prefix)
    with pytest.raises(rs.Infeasible, match=r"bin 'speed': .* and 8,192 fit"):
        rs.plan(work, rs.pure_dp(1))
