"""Trees with a vector at every node, against dense matrices; the dual of regular trees, its bracket."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from residua._arrays import Array
from residua.linalg.trees import Tree, merged
from residua.linalg.vector_trees import (
    nested_bases,
    vector_passes,
    vector_root_trace,
    vector_slopes,
    vector_solved,
)
from residua.solve.vector_trees import _Budgets, level_matrices, solve_vector_tree

CELLS = 4


class Case:
    """A random tree whose levels measure less and less, in two kinds."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        parents, count = [], 1
        for _ in range(2):
            children = self.draw.integers(1, 4, count)
            parents.append(np.repeat(np.arange(count), children))
            count = int(children.sum())
        self.tree = Tree.of(parents)
        leaf = self.draw.integers(-2, 3, (2, CELLS)) + np.eye(2, CELLS) * 5
        middle = np.concatenate([leaf, self.draw.normal(size=(1, CELLS))])
        bases = [np.eye(CELLS), middle, leaf]
        self.kinds = [[self.draw.normal(size=(len(each),) * 2) @ each for _ in range(2)] for each in bases]
        self.bases = nested_bases([np.concatenate(each) for each in self.kinds])
        self.squares = [
            np.stack([basis.T @ own.T @ own @ basis for own in kinds])
            for basis, kinds in zip(self.bases, self.kinds, strict=True)
        ]
        self.precisions = [self.draw.uniform(0.2, 1.0, (size, 2)) for size in self.tree.sizes]
        self.nodes = [np.eye(self.tree.sizes[-1])]
        for own in reversed(self.tree.parents):
            self.nodes.insert(0, np.eye(int(own[-1]) + 1)[:, own] @ self.nodes[0])

    def weights(self) -> list[Array]:
        """A positive semidefinite matrix for every node."""
        found = []
        for size, basis in zip(self.tree.sizes, self.bases, strict=True):
            root = self.draw.normal(size=(size, *[basis.shape[1]] * 2))
            found.append(root @ root.swapaxes(1, 2))
        return found

    def covariance(self) -> Array:
        total = 0.0
        for nodes, own, kinds in zip(self.nodes, self.precisions, self.kinds, strict=True):
            for precisions, rows in zip(own.T, kinds, strict=True):
                total = total + np.kron(nodes.T @ np.diag(precisions) @ nodes, rows.T @ rows)
        return np.linalg.pinv(total, hermitian=True, rcond=1e-11)


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_covariances_and_solutions_are_those_of_dense_least_squares(seed):
    case = Case(seed)
    covariance = case.covariance()
    found = vector_passes(case.tree, case.precisions, case.squares)
    assert [basis.shape[1] for basis in case.bases] == [4, 3, 2]
    sides = [case.draw.normal(size=(*own.shape[:2], 2)) for own in found.final]
    right = 0.0
    for nodes, basis, own in zip(case.nodes, case.bases, sides, strict=True):
        right = right + np.einsum("ul,si,uik->lsk", nodes, basis, own).reshape(-1, 2)
    whole = (covariance @ right).reshape(case.tree.sizes[-1], CELLS, 2)
    solved = vector_solved(case.tree, found, sides, 2)
    for level, (nodes, basis) in enumerate(zip(case.nodes, case.bases, strict=True)):
        rows = np.einsum("ul,si->uils", nodes, basis).reshape(len(nodes), basis.shape[1], -1)
        dense = rows @ covariance @ rows.swapaxes(1, 2)
        assert np.allclose(found.final[level], dense, rtol=1e-7, atol=1e-8 * np.abs(dense).max())
        seen = np.einsum("ul,si,lsk->uik", nodes, basis, whole)
        assert np.allclose(solved[level], seen, rtol=1e-7, atol=1e-8 * np.abs(seen).max())


@given(st.integers(0, 10**6))
@settings(max_examples=10, deadline=None)
def test_vector_slopes_are_derivatives(seed):
    case = Case(seed)
    weights = case.weights()

    def total(precisions: list[Array]) -> float:
        final = vector_passes(case.tree, precisions, case.squares).final
        return sum(float((own * each).sum()) for own, each in zip(weights, final, strict=True))

    slopes, _ = vector_slopes(
        case.tree, vector_passes(case.tree, case.precisions, case.squares), case.squares, weights
    )
    step = [case.draw.normal(size=own.shape) for own in case.precisions]
    ends = [[own + s * 1e-6 * each for own, each in zip(case.precisions, step, strict=True)] for s in (1, -1)]
    along = sum(float((own * each).sum()) for own, each in zip(slopes, step, strict=True))
    assert along == pytest.approx((total(ends[0]) - total(ends[1])) / 2e-6, rel=1e-4)


@given(st.integers(0, 10**6))
@settings(max_examples=10, deadline=None)
def test_the_vector_root_trace_is_below_the_true_one_by_little(seed):
    case = Case(seed)
    grams = [
        np.einsum("si,uij,tj->ust", basis, own, basis)
        for basis, own in zip(case.bases, case.weights(), strict=True)
    ]
    leaves = case.draw.uniform(0.1, 1.0, (case.tree.sizes[-1], CELLS))
    size = leaves.size
    whole = 0.0
    for nodes, own in zip(case.nodes, grams, strict=True):
        whole = whole + np.einsum("ul,um,ust->lsmt", nodes, nodes, own).reshape(size, size)
    root = np.sqrt(leaves.reshape(-1))
    true = np.sqrt(np.clip(np.linalg.eigvalsh(root[:, None] * whole * root), 0, None)).sum()
    found = vector_root_trace(case.tree, grams, leaves)
    assert found <= true * (1 + 1e-9)
    assert found >= true * (1 - 1e-4)


def regular() -> tuple[Tree, list[Array], list[Array]]:
    """A regular tree whose levels ask different queries, its grams, and its weights by node when merged."""
    parents = [np.repeat(np.arange(1), 3), np.repeat(np.arange(3), 4)]
    prefix = np.tril(np.ones((5, 5)))
    grams = [np.eye(5), prefix.T @ prefix, np.ones((5, 5))]
    small, _ = merged(Tree.of(parents))
    weights = [own[:, None, None] * gram for own, gram in zip(small.stands_for, grams, strict=True)]
    return small, grams, weights


def test_slopes_in_the_logits_are_derivatives():
    small, grams, weights = regular()
    ways = [level_matrices(np.array(nodes), grams, 1e-5) for nodes in ([1.0, 3.0, 12.0], [1.0, 2.0, 30.0])]
    problem = _Budgets(small, weights, list(zip(*(each.rows for each in ways), strict=True)))
    at = problem.start() + 0.1 * np.random.default_rng(1).normal(size=len(problem.start()))
    _, slope = problem.value(at, 64.0)
    for number, own in enumerate(np.eye(len(at)) * 1e-5):
        two = [problem.value(at + sign * own, 64.0)[0] for sign in (1, -1)]
        assert slope[number] == pytest.approx((two[0] - two[1]) / 2e-5, abs=1e-6)


def test_on_regular_trees_the_dual_of_the_levels_is_reached():
    small, grams, weights = regular()
    found = level_matrices(np.array([1.0, 3.0, 12.0]), grams, 1e-6)
    assert found.lower <= found.upper <= found.lower * (1 + 1e-5)
    solution = solve_vector_tree(small, weights, [(rows,) for rows in found.rows], found.cells)
    assert solution.value <= found.lower * (1 + 1e-4)
    assert found.lower * (1 - 1e-3) <= solution.lower_bound <= found.lower * (1 + 1e-6)
