"""Every query family against its definition, written out row by row."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from residua.errors import WorkloadError
from residua.linalg.classes import Classes
from residua.schema import Attribute, Binned, Categorical, Hierarchy, Integer
from residua.workload import (
    Combined,
    Explicit,
    Family,
    Queries,
    abs_diff,
    affine,
    buckets,
    circular,
    identity,
    level,
    predicates,
    prefix,
    queries_from_manifest,
    ranges,
    total,
    width,
)

Rows = list[list[float]]


@dataclass(frozen=True)
class Case:
    """Queries, and the same queries as a list of rows."""

    label: str
    queries: Queries
    attributes: tuple[Attribute, ...]
    expected: NDArray[np.float64]
    weights: NDArray[np.float64] = field(default_factory=lambda: np.ones(0))

    @property
    def weighted(self) -> NDArray[np.float64]:
        return self.weights if self.weights.size else np.ones(len(self.expected))


def of_sets(n: int, sets: list[set[int]]) -> Rows:
    return [[float(cell in members) for cell in range(n)] for members in sets]


def windows(n: int, w: int) -> Rows:
    return of_sets(n, [set(range(start, start + w)) for start in range(n - w + 1)])


ONE: dict[str, tuple[Family, Callable[[int], Rows]]] = {
    "identity": (identity, lambda n: of_sets(n, [{i} for i in range(n)])),
    "total": (total, lambda n: of_sets(n, [set(range(n))])),
    "prefix": (prefix, lambda n: of_sets(n, [set(range(i + 1)) for i in range(n)])),
    "ranges": (ranges, lambda n: of_sets(n, [set(range(s, e + 1)) for s in range(n) for e in range(s, n)])),
    "circular": (
        circular,
        lambda n: of_sets(
            n, [{(s + k) % n for k in range(length)} for s in range(n) for length in range(1, n + 1)]
        ),
    ),
    "predicates": (
        predicates,
        lambda n: of_sets(n, [{i for i in range(n) if (q >> i) & 1} for q in range(2**n)]),
    ),
}
TWO: dict[str, tuple[Family, Callable[[int, int], list[Callable[[int, int], bool]]]]] = {
    "affine": (affine, lambda n, m: [lambda i, j, c=c: i + j <= c for c in range(n + m - 1)]),
    "abs_diff": (abs_diff, lambda n, m: [lambda i, j, c=c: abs(i - j) <= c for c in range(max(n, m))]),
}
TREE = Hierarchy(("state", "county"), [("NY", "a"), ("NY", "b"), ("NJ", "c"), ("NY", "d"), ("CT", "e")])


def size_cases() -> list[Case]:
    cases = []
    for name, (family, rows) in ONE.items():
        for n in (1, 2, 3, 5, 8):
            attribute = Integer(0, n - 1)
            cases.append(Case(f"{name}-{n}", family.bind(attribute), (attribute,), np.array(rows(n))))
    for n, w in [(1, 1), (2, 1), (2, 2), (3, 2), (5, 1), (5, 3), (8, 3), (8, 5), (8, 8)]:
        attribute = Integer(0, n - 1)
        cases.append(Case(f"width-{n}-{w}", width(w).bind(attribute), (attribute,), np.array(windows(n, w))))
    for name, (family, tests) in TWO.items():
        for n, m in [(1, 1), (1, 4), (2, 3), (4, 4), (3, 5), (5, 3)]:
            pair = (Integer(0, n - 1), Integer(0, m - 1))
            cells = list(itertools.product(range(n), range(m)))
            matrix = np.array([[float(test(i, j)) for i, j in cells] for test in tests(n, m)])
            cases.append(Case(f"{name}-{n}x{m}", family.bind(*pair), pair, matrix))
    return cases


def set_cases() -> list[Case]:
    """Buckets and levels."""
    plan: list[tuple[str, Family, Attribute, list[set[int]]]] = [
        ("cuts", buckets(3, 4, 6), Integer(0, 7), [{0, 1, 2}, {3}, {4, 5}, {6, 7}]),
        ("cuts-from-5", buckets(7), Integer(5, 9), [{0, 1}, {2, 3, 4}]),
        ("cuts-other", buckets(2), Integer(0, 3, outside="other"), [{0, 1}, {2, 3}]),
        ("bins", buckets(20, 40), Binned(0, 10, 20, 30, 40, above=True), [{0, 1}, {2, 3}, {4}]),
        ("disjoint", buckets(("d", "a"), ("c",)), Categorical(*"abcd"), [{0, 3}, {2}]),
        (
            "overlap",
            buckets(("a", "b"), ("b", "c"), ("a", "b")),
            Categorical(*"abcd"),
            [{0, 1}, {1, 2}, {0, 1}],
        ),
        ("named", buckets({"x": ["b"], "y": ["c", "a"]}), Categorical(*"abc"), [{1}, {0, 2}]),
        ("named-overlap", buckets({"x": ["b"], "y": ["b", "a"]}), Categorical(*"abc"), [{1}, {0, 1}]),
        ("state", level("state"), TREE, [{0, 1, 3}, {2}, {4}]),
        ("county", level("county"), TREE, [{0}, {1}, {2}, {3}, {4}]),
    ]
    return [
        Case(f"set-{label}", family.bind(attribute), (attribute,), np.array(of_sets(attribute.size, sets)))
        for label, family, attribute, sets in plan
    ]


def explicit_cases() -> list[Case]:
    draw = np.random.default_rng(3)
    tall, wide = draw.normal(size=(9, 4)), draw.normal(size=(3, 6))
    deficient = draw.integers(-2, 3, size=(6, 2)) @ draw.integers(-2, 3, size=(2, 5)).astype(float)
    repeated = np.array([[1.0, 0, 2], [1, 0, 2], [0, 0, 0], [3, 0, 6], [0, 0, 1]])
    plan = [
        ("tall", (4,), tall, None),
        ("wide", (2, 3), wide, None),
        ("deficient", (5,), deficient, None),
        ("repeated-zero-column", (3,), repeated, None),
        ("weighted", (4,), tall, draw.uniform(0.1, 9.0, 9)),
        ("weighted-deficient", (5,), deficient, np.array([1e6, 1.0, 1e-3, 4.0, 1e3, 1.0])),
        ("weighted-zero-column", (3,), repeated, np.array([2.0, 3.0, 1.0, 1.0, 5.0])),
        ("one-cell", (1,), np.array([[2.0], [0.0], [-1.0]]), np.array([1.0, 2.0, 3.0])),
    ]
    return [
        Case(
            f"explicit-{label}",
            Explicit(sizes, matrix, weights),
            tuple(Integer(0, size - 1) for size in sizes),
            matrix,
            np.ones(0) if weights is None else weights,
        )
        for label, sizes, matrix, weights in plan
    ]


def combined_cases() -> list[Case]:
    """Rows over classes of cells, each spread over its cells by hand."""
    draw = np.random.default_rng(4)
    plan: list[tuple[str, list[list[int]], int, bool]] = [
        ("either", [[0, 0, 1], [0, 1, 1, 1]], 1, False),
        ("three", [[0, 1], [0, 1, 0, 2], [0, 0, 1]], 5, True),
        ("every-cell", [[0, 1, 2], [0, 1]], 4, False),
        ("deficient", [[0, 0, 1, 1], [0, 1, 0]], 9, True),
    ]
    cases = []
    for label, classes, count, weighted in plan:
        counts = [max(each) + 1 for each in classes]
        rows = draw.integers(0, 2, (count, *counts)).astype(float)
        rows[0] = 1.0
        rows[0].flat[0] = 0.0
        weights = draw.uniform(0.5, 2.0, count) if weighted else None
        spread = [[row[at] for at in itertools.product(*classes)] for row in rows]
        queries = Combined(
            tuple(Classes.of(each) for each in classes),
            Explicit(tuple(counts), rows.reshape(count, -1), weights),
        )
        attributes = tuple(Integer(0, len(each) - 1) for each in classes)
        own = np.ones(0) if weights is None else weights
        cases.append(Case(f"combined-{label}", queries, attributes, np.array(spread), own))
    return cases


CASES = [*size_cases(), *set_cases(), *explicit_cases(), *combined_cases()]


@pytest.fixture(params=CASES, ids=lambda case: case.label)
def case(request: pytest.FixtureRequest) -> Case:
    assert isinstance(request.param, Case)
    return request.param


def covariances(cells: int, *batch: int) -> NDArray[np.float64]:
    root = np.random.default_rng(cells).normal(size=(*batch, cells, cells + 1))
    return root @ np.swapaxes(root, -1, -2)


def test_rows_are_the_definition(case: Case) -> None:
    assert case.queries.count == len(case.expected)
    assert case.queries.cells == case.expected.shape[1]
    assert case.queries.sizes == tuple(attribute.size for attribute in case.attributes)
    np.testing.assert_array_equal(case.queries.matrix(), case.expected)
    start, stop = case.queries.count // 3, case.queries.count - case.queries.count // 4
    np.testing.assert_array_equal(case.queries.rows(start, stop), case.expected[start:stop])
    assert case.queries.rows(start, start).shape == (0, case.queries.cells)


def test_rows_outside_are_refused(case: Case) -> None:
    for start, stop in [(-1, 1), (1, 0), (0, case.queries.count + 1)]:
        with pytest.raises(IndexError, match="has no rows"):
            case.queries.rows(start, stop)


def test_gram_is_the_sum_of_weighted_outer_products(case: Case) -> None:
    A = case.expected
    scale = np.max(np.abs(A.T @ (case.weighted[:, None] * A)))
    np.testing.assert_allclose(case.queries.gram(), A.T @ (case.weighted[:, None] * A), atol=1e-14 * scale)
    np.testing.assert_allclose(case.queries.gram(weighted=False), A.T @ A, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(case.queries.mean_gram(), A.T @ A / len(A), rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(case.queries.gram(), case.queries.gram().T)


def test_root_has_independent_rows_and_squares_to_the_gram(case: Case) -> None:
    root, gram = case.queries.root(), case.queries.gram()
    np.testing.assert_allclose(root.T @ root, gram, rtol=1e-12, atol=1e-13 * np.max(np.abs(gram)))
    assert root.shape == (np.linalg.matrix_rank(case.expected), case.queries.cells)
    assert np.linalg.matrix_rank(root / np.linalg.norm(root, axis=1, keepdims=True)) == len(root)


def test_weights_are_one_or_as_given(case: Case) -> None:
    if case.queries.weights is not None:
        np.testing.assert_array_equal(case.queries.weights, case.weights)
    else:
        assert (case.weighted == 1.0).all()


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_answers_are_products_with_the_rows(case: Case, batch: tuple[int, ...]) -> None:
    x = np.random.default_rng(5).integers(0, 50, size=(*batch, case.queries.cells))
    answers = case.queries.answers(x)
    assert answers.shape == (*batch, case.queries.count)
    np.testing.assert_allclose(answers, x @ case.expected.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_quadratic_is_each_querys_variance(case: Case, batch: tuple[int, ...]) -> None:
    P = covariances(case.queries.cells, *batch)
    expected = np.einsum("qi,...ij,qj->...q", case.expected, P, case.expected)
    variances = case.queries.quadratic(P)
    assert variances.shape == (*batch, case.queries.count)
    np.testing.assert_allclose(variances, expected, rtol=1e-10, atol=1e-10)


def test_quadratic_takes_any_square_matrix(case: Case) -> None:
    P = np.random.default_rng(8).normal(size=(case.queries.cells, case.queries.cells))
    expected = np.einsum("qi,ij,qj->q", case.expected, P, case.expected)
    np.testing.assert_allclose(case.queries.quadratic(P), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(case.queries.trace(P), expected.sum(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_trace_is_the_sum_of_variances(case: Case, batch: tuple[int, ...]) -> None:
    P = covariances(case.queries.cells, *batch)
    variances = np.einsum("qi,...ij,qj->...q", case.expected, P, case.expected)
    assert case.queries.trace(P).shape == batch
    np.testing.assert_allclose(case.queries.trace(P), variances.sum(axis=-1), rtol=1e-11)
    np.testing.assert_allclose(case.queries.trace(P, weighted=True), variances @ case.weighted, rtol=1e-11)


def test_wrong_shapes_are_refused_with_the_right_one(case: Case) -> None:
    n = case.queries.cells
    with pytest.raises(WorkloadError, match=rf"\(\.\.\., {n}\)"):
        case.queries.answers(np.ones(n + 1))
    with pytest.raises(WorkloadError, match=rf"\(\.\.\., {n}, {n}\)"):
        case.queries.quadratic(np.ones((n, n + 1)))
    with pytest.raises(WorkloadError, match=rf"\(\.\.\., {n}, {n}\)"):
        case.queries.trace(np.ones(n))


def test_flags_hold_on_the_gram(case: Case) -> None:
    gram = case.queries.gram()
    n = case.queries.cells
    if case.queries.circulant:
        np.testing.assert_allclose(np.roll(gram, (1, 1), (0, 1)), gram, rtol=1e-14)
    if case.queries.invariant:
        assert case.queries.circulant
        for i, j in itertools.combinations(range(n), 2):
            swapped = np.arange(n)
            swapped[[i, j]] = j, i
            np.testing.assert_array_equal(gram[np.ix_(swapped, swapped)], gram)


def test_record_brings_back_equal_queries(case: Case) -> None:
    arrays: dict[str, NDArray[np.float64]] = {"workload.1": np.ones(1)}  # a key that is taken
    record = case.queries.to_manifest(arrays)
    back = queries_from_manifest(record, arrays)
    assert back == case.queries
    assert hash(back) == hash(case.queries)
    np.testing.assert_array_equal(arrays["workload.1"], [1.0])
    np.testing.assert_array_equal(back.matrix(), case.expected)
    names = [f"a{i}" for i in range(len(case.attributes))]
    assert back.describe(0, names, case.attributes) == case.queries.describe(0, names, case.attributes)


def test_equality_means_the_same_family_and_numbers() -> None:
    for one, two in itertools.combinations(CASES, 2):
        assert one.queries != two.queries, (one.label, two.label)
    assert all(case.queries != "prefix" for case in CASES)


def test_queries_are_worded_differently(case: Case) -> None:
    names = [f"a{i}" for i in range(len(case.attributes))]
    words = [case.queries.describe(index, names, case.attributes) for index in range(case.queries.count)]
    if case.label != "set-overlap":  # the same set twice reads the same
        assert len(set(words)) == case.queries.count
    for wrong in (-1, case.queries.count):
        with pytest.raises(IndexError, match="has no query"):
            case.queries.describe(wrong, names, case.attributes)


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("n", [5, 8])
def test_flags_are_set_wherever_they_hold(name: str, n: int) -> None:
    queries = ONE[name][0].bind(Integer(0, n - 1))
    gram = queries.gram()
    assert queries.circulant == bool((np.roll(gram, (1, 1), (0, 1)) == gram).all())
    off = gram[~np.eye(n, dtype=bool)]
    assert queries.invariant == bool((off == off[0]).all() and (np.diag(gram) == gram[0, 0]).all())
