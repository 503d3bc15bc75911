"""Cells that change places: two halves have all that the whole gram has."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import residua as rs
from residua.bounds.singular import svd_of_gram
from residua.linalg.folding import Fold, exchange
from residua.linalg.grams import sure_root
from residua.methods.dense import _halves, dense
from residua.solve.cells import bracket, solve_cells, solve_folded
from residua.workload.union import joint_gram, joint_rows

SIZES = st.sampled_from([((3, 3), 0, 1), ((4, 4), 0, 1), ((2, 3, 3), 1, 2), ((3, 2, 3), 0, 2)])


def kept_gram(fold: Fold, seed: int) -> np.ndarray:
    cells = fold.odd + len(fold.first)
    rows = np.random.default_rng(seed).normal(size=(cells + 3, cells))
    other = np.empty(cells, dtype=int)
    other[fold.first], other[fold.second] = fold.second, fold.first
    gram = rows.T @ rows
    return (gram + gram[np.ix_(other, other)]) / 2


@given(SIZES, st.integers(0, 2**32 - 1))
def test_both_halves_have_the_eigenvalues_of_the_whole(case, seed):
    fold = Fold.of_attributes(*case)
    gram = kept_gram(fold, seed)
    halves = np.concatenate([np.linalg.eigvalsh(part) for part in fold.parts(gram)])
    assert np.allclose(np.sort(halves), np.linalg.eigvalsh(gram))
    assert svd_of_gram(gram, fold) == pytest.approx(svd_of_gram(gram), rel=1e-9)


@given(SIZES, st.integers(0, 2**32 - 1))
def test_an_exchange_is_found_where_it_leaves_the_gram_as_it_is_and_nowhere_else(case, seed):
    fold = Fold.of_attributes(*case)
    gram = kept_gram(fold, seed)
    found = exchange(gram, case[0])
    assert found is not None
    assert np.array_equal(found.first, fold.first)
    assert np.array_equal(found.second, fold.second)
    gram[fold.first[0], fold.first[0]] *= 1 + 1e-12
    assert exchange(gram, case[0]) is None
    other = kept_gram(fold, seed)
    cell = fold.first[0], fold.first[1]
    other[cell] = other[cell[::-1]] = other[cell] + 1e-9
    assert exchange(other, case[0]) is None


@given(SIZES, st.integers(0, 2**32 - 1))
def test_weights_and_rows_come_back_from_the_pairs(case, seed):
    fold = Fold.of_attributes(*case)
    gram = kept_gram(fold, seed)
    weights = np.diagonal(gram) / np.trace(gram)
    assert fold.keeps(weights)
    assert np.allclose(fold.spread(fold.gathered(weights)), weights)
    even, odd = (np.linalg.cholesky(part).T for part in fold.parts(gram))
    rows = np.zeros((len(gram), len(fold.first)))
    rows[: len(even)], rows[len(even) :, : len(odd)] = even, odd
    whole = fold.rows(rows / fold.lengths)
    assert np.allclose(whole.T @ whole, gram)


@given(SIZES, st.integers(0, 2**32 - 1))
def test_halves_are_solved_like_the_whole(case, seed):
    """The dense twin: bounds, strategy and weights are those of one matrix over all cells."""
    fold = Fold.of_attributes(*case)
    gram = kept_gram(fold, seed)
    roots = [sure_root(part) for part in fold.parts(gram)]
    if any(root is None for root in roots):
        return
    found = solve_folded(fold, [root[0] for root in roots], 1e-7)
    root = np.linalg.cholesky(gram).T
    twin = solve_cells(root, 1e-7)
    assert found.gap <= 1e-7
    assert twin.lower <= found.upper
    assert found.lower <= twin.upper
    privacy = found.strategy.T @ found.strategy
    assert np.diagonal(privacy).max() == pytest.approx(1, abs=1e-9)
    assert np.trace(gram @ np.linalg.inv(privacy)) == pytest.approx(found.upper, rel=1e-6)
    assert bracket(root, np.maximum(found.cell_weights, 1e-12)).lower == pytest.approx(found.lower, rel=1e-6)


def test_newton_steps_on_pairs_reach_what_they_reach_on_all_cells(monkeypatch):
    """Without steps before Newton's, whose second derivatives are then those of both halves."""
    monkeypatch.setattr("residua.solve.cells.APPROACHES", 1)
    fold = Fold.of_attributes((5, 5), 0, 1)
    gram = kept_gram(fold, 3)
    found = solve_folded(fold, [sure_root(part)[0] for part in fold.parts(gram)], 1e-8)
    assert found.gap <= 1e-8
    assert found.upper == pytest.approx(solve_cells(np.linalg.cholesky(gram).T, 1e-8).upper, rel=2e-8)


def four_tables(size: int) -> rs.Workload:
    schema = rs.Schema.of_sizes([size, size])
    a, b = schema.names
    asked = ({a: rs.prefix}, {b: rs.prefix}, {a: rs.prefix, b: rs.identity}, {a: rs.identity, b: rs.prefix})
    return sum(rs.table(schema, each) for each in asked)


def test_a_union_on_two_equal_attributes_is_planned_by_halves_and_as_well(monkeypatch):
    work = four_tables(13)
    assert _halves(work, [13, 13]) is not None
    draft = dense(work, 1e-5)
    monkeypatch.setattr("residua.methods.dense.FOLDED_CELLS", 1_000)
    whole = dense(work, 1e-5)
    assert draft.value == pytest.approx(whole.value, rel=1e-5)
    assert draft.lower_bound == pytest.approx(whole.lower_bound, rel=1e-5)
    assert draft.lower_bound <= draft.total(work) <= draft.value * (1 + 1e-9)
    assert draft.value <= draft.lower_bound * (1 + 1e-5)
    assert draft.total(work) == pytest.approx(draft.value, rel=1e-5)


def test_tables_that_differ_between_attributes_or_leave_cells_unasked_are_not_halved():
    schema = rs.Schema.of_sizes([6, 6])
    a, b = schema.names
    assert _halves(rs.table(schema, {a: rs.prefix, b: rs.identity}), [6, 6]) is None
    assert _halves(rs.marginals(schema, ways=1), [6, 6]) is None  # not of full rank
    assert exchange(joint_gram(rs.marginals(schema, ways=1)), [6, 6]) is not None
    assert _halves(rs.marginals(rs.Schema.of_sizes([5, 6]), up_to=2), [5, 6]) is None


def test_the_bound_from_halves_is_the_bound_from_all_rows():
    work = four_tables(9)
    gram = joint_gram(work)
    fold = exchange(gram, [9, 9])
    scales = np.linalg.svd(joint_rows(work), compute_uv=False)
    assert svd_of_gram(gram, fold) == pytest.approx(scales.sum() ** 2 / 81, rel=1e-9)
