"""Means, centring and directions that stand out of rounding, against definitions written out."""

from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from residua.linalg.matrices import Measure, centred_columns, project, standing_rows

Array = NDArray[np.float64]


def random_measure(generator: np.random.Generator, size: int, kind: str) -> Measure:
    if kind == "uniform":
        return Measure(size)
    weights = generator.dirichlet(np.ones(size)) if kind == "positive" else generator.normal(1.0, 2.0, size)
    return Measure.of(weights / weights.sum())


def matrices(measures: list[Measure], kept: tuple[int, ...]) -> Array:
    """What projecting multiplies rows by: `I - p1'` along a kept axis, `p` along another."""
    whole = np.ones((1, 1))
    for axis, measure in enumerate(measures):
        p = measure.vector()[:, None]
        whole = np.kron(whole, np.eye(measure.size) - p if axis in kept else p)
    return whole


CASES = [(sizes, kind) for sizes in [(3,), (2, 4), (3, 1, 2)] for kind in ("uniform", "positive", "signed")]


@pytest.mark.parametrize(("sizes", "kind"), CASES)
def test_projecting_is_multiplying_by_means_and_centring_matrices(sizes, kind):
    generator = np.random.default_rng(1)
    measures = [random_measure(generator, size, kind) for size in sizes]
    rows = generator.normal(size=(5, int(np.prod(sizes))))
    for count in range(len(sizes) + 1):
        for kept in combinations(range(len(sizes)), count):
            expected = rows @ matrices(measures, kept)
            np.testing.assert_allclose(project(rows, sizes, measures, kept), expected, atol=1e-13)


@pytest.mark.parametrize(("sizes", "kind"), CASES)
def test_centred_columns_answer_a_query_as_its_centred_form_would(sizes, kind):
    generator = np.random.default_rng(2)
    measures = [random_measure(generator, size, kind) for size in sizes]
    cells = int(np.prod(sizes))
    rows, columns = generator.normal(size=(4, cells)), generator.normal(size=(cells, 3))
    centred = project(rows, sizes, measures, range(len(sizes)))
    np.testing.assert_allclose(
        rows @ centred_columns(columns, sizes, measures), centred @ columns, atol=1e-12
    )


def test_a_centred_row_has_mean_zero_along_every_axis():
    generator = np.random.default_rng(3)
    measures = [random_measure(generator, size, "signed") for size in (3, 4)]
    centred = project(generator.normal(size=(6, 12)), (3, 4), measures, (0, 1)).reshape(6, 3, 4)
    for axis, measure in enumerate(measures):
        np.testing.assert_allclose(np.tensordot(centred, measure.vector(), (1 + axis, 0)), 0, atol=1e-13)


def test_a_measure_keeps_its_weights_and_equals_one_with_the_same():
    weights = np.array([0.25, 1.0, -0.25])
    assert Measure.of(weights) == Measure.of(weights.copy())
    assert Measure.of(weights) != Measure(3)
    np.testing.assert_array_equal(Measure.of(weights).vector(), weights)
    np.testing.assert_array_equal(Measure(4).vector(), [0.25] * 4)


def test_standing_rows_have_the_gram_of_all_rows():
    generator = np.random.default_rng(4)
    for count, cells, rank in product((1, 3, 7), (2, 5), (1, 2)):
        rows = generator.normal(size=(count, rank)) @ generator.normal(size=(rank, cells))
        root = standing_rows(rows, np.linalg.norm(rows, axis=1))
        assert len(root) == min(count, rank)
        np.testing.assert_allclose(root.T @ root, rows.T @ rows, atol=1e-12)


@pytest.mark.parametrize("left", [1e-3, 1e-6, 1e-9])
def test_what_is_left_of_a_cancellation_makes_no_direction_of_its_own(left):
    generator = np.random.default_rng(5)
    line = np.array([1.0, -2.0, 1.0, 0.0])
    rounding = 1e-16 * generator.normal(size=(6, 4))  # of rows that were of length 1 before they cancelled
    rows = left * np.outer(generator.normal(size=6), line) + rounding
    assert len(standing_rows(rows, np.ones(6))) == 1
    assert len(standing_rows(np.concatenate([rows, [[0, 0, left, -left]]]), np.ones(7))) == 2


def test_rows_that_are_only_rounding_leave_none():
    rows = 1e-17 * np.random.default_rng(6).normal(size=(3, 4))
    assert standing_rows(rows, np.ones(3)).shape == (0, 4)
    assert standing_rows(np.empty((0, 4)), np.empty(0)).shape == (0, 4)


def test_light_rows_keep_their_directions_beside_heavy_ones():
    rows = np.array([[1.0, -1.0, 0.0], [0.0, 1e-20, -1e-20]])
    assert len(standing_rows(rows, np.linalg.norm(rows, axis=1))) == 2
