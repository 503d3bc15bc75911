"""Non-negative tables: what holds exactly, and the same answers as one dense convex programme."""

import math
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest

import residua as rs
from residua.postprocess.facts import Facts
from residua.postprocess.margins import with_margins, with_total
from residua.postprocess.nonnegative import STIFFNESS, nonnegative_tables
from residua.postprocess.pieces import (
    PieceError,
    PieceErrors,
    Square,
    Stack,
    TableSet,
    centred,
    largest_sets,
    piece,
    shaped,
    spread,
)
from residua.postprocess.processed import processed
from residua.postprocess.splitting import Splitting, nonnegative_whole, tied_attributes

SIZES = (4, 3, 2, 5)
SCHEMA = rs.Schema.of_sizes(SIZES)


def people(count, seed=0):
    """Few people in few cells, so that much noise is cut off."""
    generator = np.random.default_rng(seed)
    return np.column_stack([(generator.random(count) ** 3 * size).astype(np.int64) for size in SIZES])


def release_of(work, *, count=300, rho="0.05", seed=1, **options):
    plan = rs.plan(work, rs.zcdp(rho), **options)
    return rs.measure(plan, people(count), ledger=None, noise=rs.simulated(seed=seed))


def tables_of(release):
    return release._unbiased().tables()


WORKLOADS = {
    "two-way": rs.marginals(SCHEMA, ways=2),
    "up to two": rs.marginals(SCHEMA, up_to=2),
    "three-way": rs.marginals(SCHEMA, ways=3),
    "all": rs.marginals(SCHEMA, ways=4),
    "prefix": rs.all_tables(SCHEMA, ways=2, family=rs.prefix),
    "prefix three": rs.all_tables(SCHEMA, ways=3, family=rs.prefix),
    "affine": rs.all_tables(SCHEMA, ways=2, family=rs.affine),
    "mixed": rs.table(SCHEMA, ["a0", "a1", "a2"]) + rs.table(SCHEMA, {"a3": rs.ranges, "a0": rs.identity}),
    "one attribute": rs.table(SCHEMA, ["a3"]),
    "total": rs.marginals(SCHEMA, ways=0),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_tables_are_non_negative_and_agree_on_every_margin_they_share(name):
    found = release_of(WORKLOADS[name]).nonnegative().tables
    assert min(float(stack.cells.min()) for stack in found.stacks) >= 0
    assert found.disagreement() <= 1e-6


@pytest.mark.parametrize("method", ["identity", "dense", "querysmasher", "residualplanner"])
def test_every_kind_of_plan_can_be_made_non_negative(method):
    found = release_of(rs.marginals(SCHEMA, ways=2), method=method).nonnegative()
    assert found.values().min() >= 0
    assert found.tables.disagreement() <= 1e-6


def test_the_total_is_the_unbiased_one():
    release = release_of(WORKLOADS["three-way"])
    whole = float(release.values(WORKLOADS["total"])[0])
    for stack in release.nonnegative().tables.stacks:
        assert stack.cells.sum(axis=tuple(range(1, stack.cells.ndim))) == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize("name", ["two-way", "three-way", "prefix"])
def test_tables_that_are_not_negative_stay_as_they_are(name):
    everywhere = np.array([cell for cell in np.ndindex(*SIZES) for _ in range(500)])
    plan = rs.plan(WORKLOADS[name], rs.zcdp(1))
    release = rs.measure(plan, everywhere, ledger=None, noise=rs.simulated(seed=3))
    assert min(float(stack.cells.min()) for stack in tables_of(release).stacks) > 0
    assert release.nonnegative().values() == pytest.approx(release.values(), abs=1e-4)


def test_no_records_give_empty_tables():
    plan = rs.plan(WORKLOADS["two-way"], rs.zcdp("0.001"))
    nobody = np.zeros((0, len(SIZES)), dtype=np.int64)
    releases = [rs.measure(plan, nobody, ledger=None, noise=rs.simulated(seed=seed)) for seed in range(8)]
    below = [each for each in releases if each.values(WORKLOADS["total"])[0] < 0]
    assert below
    assert not below[0].nonnegative().values().any()


def test_the_error_of_sparse_tables_is_much_smaller():
    schema = rs.Schema.of_sizes([20, 15, 10])
    rows = np.random.default_rng(0).integers(0, 3, (500, 3))
    work = rs.marginals(schema, ways=2)
    plan = rs.plan(work, rs.zcdp("0.05"))
    truth = np.concatenate(
        [
            np.histogramdd(rows[:, list(pair)], [np.arange(schema.sizes[at] + 1) for at in pair])[0].reshape(
                -1
            )
            for pair in combinations(range(3), 2)
        ]
    )
    plain = cut = 0.0
    for seed in range(3):
        release = rs.measure(plan, rows, ledger=None, noise=rs.simulated(seed=seed))
        plain += float(np.abs(release.values() - truth).mean())
        cut += float(np.abs(release.nonnegative().values() - truth).mean())
    assert cut < 0.5 * plain


# Each step against a dense twin


def solved(variable, objective, constraints=()):
    problem = cp.Problem(cp.Minimize(objective), [variable >= 0, *constraints])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return variable.value


def test_the_nearest_vectors_with_a_total_are_those_of_a_quadratic_programme():
    generator = np.random.default_rng(0)
    cells, totals = generator.normal(0, 5, (6, 7)), np.array([0.0, 1.0, 3.0, 10.0, 50.0, 0.5])
    found = with_total(cells, totals)
    for row, total, ours in zip(cells, totals, found, strict=True):
        x = cp.Variable(7)
        assert ours == pytest.approx(solved(x, cp.sum_squares(x - row), [cp.sum(x) == total]), abs=1e-4)


def test_margins_of_large_tables_are_reached_though_rounding_turns_the_slope():
    draw = np.random.default_rng(9)
    true = draw.gamma(0.3, 20_000, (1_000, 9, 2))
    goal = np.maximum(true + draw.normal(0, 30, true.shape), 0)
    cells = true + draw.normal(0, 30, true.shape)
    found = with_margins(cells[250:500], goal[250:500].sum(axis=2), goal[250:500].sum(axis=1))
    assert found.min() >= 0
    assert np.abs(found.sum(axis=2) - goal[250:500].sum(axis=2)).max() < 1e-7
    assert np.abs(found.sum(axis=1) - goal[250:500].sum(axis=1)).max() < 1e-7


def test_the_nearest_tables_with_margins_are_those_of_a_quadratic_programme():
    generator = np.random.default_rng(1)
    cells = generator.normal(0, 5, (4, 5, 3))
    rows, columns = generator.random((4, 5)) * 10, generator.random((4, 3))
    rows[1, 2] = rows[2, :4] = 0
    columns *= (rows.sum(axis=1) / columns.sum(axis=1))[:, None]
    found = with_margins(cells, rows, columns)
    assert found.sum(axis=2) == pytest.approx(rows, abs=1e-7)
    assert found.sum(axis=1) == pytest.approx(columns, abs=1e-7)
    for table, row, column, ours in zip(cells, rows, columns, found, strict=True):
        x = cp.Variable((5, 3))
        margins = [cp.sum(x, axis=1) == row, cp.sum(x, axis=0) == column]
        assert ours == pytest.approx(solved(x, cp.sum_squares(x - table), margins), abs=1e-3)


def test_margins_that_leave_no_table_are_refused():
    allowed = np.eye(2, dtype=bool)[None]
    with pytest.raises(rs.Infeasible, match="impossible cells"):
        with_margins(np.zeros((1, 2, 2)), np.array([[1.0, 2.0]]), np.array([[2.0, 1.0]]), allowed)


def any_error(sizes, seed, scale=1.0):
    generator = np.random.default_rng(seed)
    squares = []
    for place, size in enumerate(sizes):
        root = generator.normal(size=(size, size))
        squares.append(((place,), Square.of(root @ root.T + np.eye(size), (size,))))
    return PieceError(scale, tuple(squares))


def precision(error, sizes):
    """Inverse covariance of a piece on all its cells, dense."""
    cells = np.eye(math.prod(sizes)).reshape(-1, *sizes)
    turned = error.rotated(cells).reshape(len(cells), -1)
    return turned @ np.diag(error.weights(sizes).reshape(-1)) @ turned.T


def test_any_covariance_gives_the_table_of_a_quadratic_programme():
    sizes, generator = (4, 3), np.random.default_rng(2)
    error, target = any_error(sizes, 3), centred(generator.normal(0, 4, sizes))
    fixed = np.full((1, *sizes), 1.0)
    problem = Splitting([Stack(np.array([[0, 1]], np.int32), fixed)], None, {(0, 1): target}, {(0, 1): error})
    ours = problem.solve(1e-10)[0][0]
    x, matrix = cp.Variable(sizes), precision(error, sizes)
    away = cp.vec(x, order="C") - (fixed[0] + target).reshape(-1)
    margins = [cp.sum(x, axis=0) == fixed[0].sum(axis=0), cp.sum(x, axis=1) == fixed[0].sum(axis=1)]
    theirs = solved(x, cp.quad_form(away, cp.psd_wrap(matrix)), margins)
    assert ours == pytest.approx(theirs, abs=1e-4)


def test_tables_solved_together_are_those_of_one_quadratic_programme():
    release = release_of(rs.marginals(SCHEMA, ways=3))
    errors = PieceErrors(release.plan.strategy, SCHEMA)
    tables = tables_of(release)
    ours = nonnegative_tables(tables, errors, Facts.of((), SCHEMA))
    below = nonnegative_tables(_two_way(tables), errors, Facts.of((), SCHEMA))
    triples = sorted(row for stack in tables.stacks for row in stack.rows())
    pieces, objective = {}, 0
    for subset in tables.places:
        sizes = tuple(SIZES[at] for at in subset)
        if len(subset) < 2:
            pieces[subset] = centred(ours.marginal(subset))
            continue
        pieces[subset] = cp.Variable(math.prod(sizes))
        target = centred((below if len(subset) == 2 else tables).marginal(subset)).reshape(-1)
        weight = STIFFNESS if len(subset) == 2 else 1.0
        matrix = precision(errors[subset], sizes)
        objective += weight * cp.quad_form(pieces[subset] - target, cp.psd_wrap(matrix))
    made = {triple: _made(triple, pieces) for triple in triples}
    problem = cp.Problem(cp.Minimize(objective), [*(each >= 0 for each in made.values()), *_centred(pieces)])
    problem.solve(solver=cp.CLARABEL)
    for triple in triples:
        assert ours.marginal(triple).reshape(-1) == pytest.approx(made[triple].value, abs=2e-3)


def _two_way(tables):
    rows = tables.subsets(2)
    return TableSet(tuple(Stack(np.array([row], np.int32), tables.marginal(row)[None]) for row in rows))


def _centred(pieces):
    for subset, each in pieces.items():
        if len(subset) > 1:
            sizes = [SIZES[at] for at in subset]
            for axis in range(len(sizes)):
                sums = [np.ones((1, n)) if at == axis else np.eye(n) for at, n in enumerate(sizes)]
                yield _kron(sums) @ each == 0


def _kron(matrices):
    result = np.ones((1, 1))
    for matrix in matrices:
        result = np.kron(result, matrix)
    return result


def _made(triple, pieces):
    total = 0
    for size in range(4):
        for subset in combinations(triple, size):
            sizes = [SIZES[at] for at in triple]
            spreads = [
                np.eye(n) if at in subset else np.full((n, 1), 1 / n)
                for at, n in zip(triple, sizes, strict=True)
            ]
            part = pieces[subset]
            total = total + _kron(spreads) @ (part.reshape(-1) if isinstance(part, np.ndarray) else part)
    return total


# Pieces and covariances


def test_a_table_is_the_sum_of_its_pieces():
    cells = np.random.default_rng(4).normal(size=(2, 3, 4, 2))
    parts = [kept for size in range(4) for kept in combinations(range(3), size)]
    whole = sum(spread(piece(cells, kept), kept, (3, 4, 2)) for kept in parts)
    assert whole == pytest.approx(cells)
    assert piece(cells, (0, 2)).sum(axis=1) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "method"),
    [("two-way", "auto"), ("prefix", "querysmasher"), ("two-way", "identity")],
)
def test_the_covariance_of_a_piece_is_the_true_one(name, method):
    plan = rs.plan(WORKLOADS[name], rs.zcdp("0.1"), method=method)
    errors = PieceErrors(plan.strategy, SCHEMA)
    for subset in [(0,), (0, 1), (1, 3)]:
        sizes = tuple(SIZES[at] for at in subset)
        cells = np.eye(math.prod(sizes)).reshape(-1, *sizes)
        turned = errors[subset].rotated(cells).reshape(len(cells), -1)
        if errors[subset].even:
            ours = centred(errors[subset].variance * cells, leading=1).reshape(len(cells), -1)
        else:
            ours = turned @ np.diag(errors[subset].variances(sizes).reshape(-1)) @ turned.T
        names = [SCHEMA.names[at] for at in subset]
        rows = centred(cells, leading=1).reshape(len(cells), -1)
        work = rs.linear(SCHEMA, names, rows)
        assert ours == pytest.approx(plan.covariance(work, work), abs=1e-6 * ours.max())


def test_the_dense_way_to_a_covariance_agrees_with_the_quick_one():
    plan = rs.plan(WORKLOADS["prefix"], rs.zcdp("0.1"), method="querysmasher")
    errors = PieceErrors(plan.strategy, SCHEMA)
    quick, dense = errors[0, 1], errors._of_any((0, 1))
    both = [precision(each, (4, 3)) for each in (quick, dense)]
    projector = np.kron(np.eye(4) - 0.25, np.eye(3) - 1 / 3)
    assert projector @ both[0] @ projector == pytest.approx(projector @ both[1] @ projector, rel=1e-6)


def test_largest_sets_cover_every_table_and_none_covers_another():
    work = rs.marginals(SCHEMA, up_to=2) + rs.table(SCHEMA, ["a2", "a0", "a1"])
    assert sorted(largest_sets(work.groups())) == [(0, 1, 2), (0, 3), (1, 3), (2, 3)]
    assert sum(len(subsets) for subsets, _ in shaped(work)) == 4


def test_tables_with_too_many_cells_are_refused_with_what_would_help():
    schema = rs.Schema.of_sizes([1000, 1000, 100])
    work = rs.table(schema, ["a0", "a1", "a2"])
    with pytest.raises(rs.Infeasible, match=r"a0 x a1 x a2, 100,000,000 cells.*fewer attributes"):
        shaped(work)


def test_what_is_not_measured_stays_even():
    work = rs.linear(SCHEMA, ["a0"], [[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    release = release_of(work, count=400, rho=1)
    (stack,) = release.nonnegative().tables.stacks
    cells = stack.cells[0]
    assert cells[0] == pytest.approx(cells[1], abs=1e-3)
    assert release.nonnegative().values() == pytest.approx(release.values(), abs=1e-3)


def test_the_same_release_gives_the_same_tables():
    release = release_of(WORKLOADS["two-way"])
    first, second = (processed(release._unbiased(), (), 3, whole=False) for _ in range(2))
    assert np.array_equal(first.values(), second.values())
    assert np.array_equal(first.errors(), second.errors())


# Product strategies that tie pieces together


def test_a_tied_joint_table_is_that_of_one_quadratic_programme():
    work = rs.all_tables(SCHEMA, ways=2, family=rs.affine)
    release = release_of(work, method="dense")
    strategy = release.plan.strategy
    assert tied_attributes(strategy) == (0, 1, 2, 3)
    tables = tables_of(release)
    (stack,) = tables.stacks
    ours = nonnegative_whole(tables, strategy, Facts.of((), SCHEMA)).stacks[0].cells[0].reshape(-1)
    attributes, (factor,), noise = strategy.single()
    assert attributes == factor.attributes == (0, 1, 2, 3)
    rows = factor.matrix / np.sqrt(noise)
    x, y = cp.Variable(len(ours)), stack.cells[0].reshape(-1)
    best = solved(x, cp.sum_squares(rows @ x - rows @ y), [cp.sum(x) == y.sum()])
    assert ours.min() >= 0
    assert ours.sum() == pytest.approx(y.sum())
    distance = [float(np.sum((rows @ (each - y)) ** 2)) for each in (ours, best)]
    assert distance[0] == pytest.approx(distance[1], rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("method", ["identity", "dense", "querysmasher"])
def test_plans_of_marginals_tie_nothing_together(method):
    assert tied_attributes(rs.plan(rs.marginals(SCHEMA, ways=2), rs.zcdp(1), method=method).strategy) is None


def test_a_tied_plan_takes_a_known_total_but_no_other_fact():
    release = release_of(rs.all_tables(SCHEMA, ways=2, family=rs.affine), method="dense")
    with pytest.warns(rs.PublicFactWarning):
        found = release.nonnegative(rs.known(WORKLOADS["total"], 300), replicates=0)
    assert found.tables.marginal(()) == pytest.approx(300)
    with pytest.warns(rs.PublicFactWarning), pytest.raises(rs.Infeasible, match="querysmasher"):
        release.nonnegative(rs.impossible(rs.table(SCHEMA, ["a2"])))


def test_cells_that_a_plan_does_not_measure_are_refused_with_a_remedy():
    work = rs.all_tables(SCHEMA, ways=2, family=rs.affine)
    release = release_of(work, method="hdmm-union")
    with pytest.raises(rs.Infeasible, match=r"every cell of a0.*querysmasher"):
        release.nonnegative()
