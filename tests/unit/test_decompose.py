"""Decomposition into blocks against means and centring written out cell by cell."""

import math
from functools import reduce
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

import residua as rs
from residua.decompose import Decomposition, decompose, signature, uniform
from residua.linalg.matrices import Measure
from residua.workload import Table

Array = NDArray[np.float64]
Subset = tuple[int, ...]


def subsets(attributes: Subset) -> list[Subset]:
    ordered = sorted(attributes)
    return [chosen for size in range(len(ordered) + 1) for chosen in combinations(ordered, size)]


def query_tensors(group: Table, sizes: tuple[int, ...]) -> Array:
    """The group's queries times the square root of their weights, over all cells: (count, *sizes)."""
    place = np.indices(sizes)
    rows = np.full((1, *sizes), math.sqrt(group.weight))
    for factor in group.factors:
        own = factor.queries.matrix().reshape(-1, *factor.queries.sizes)
        if factor.queries.weights is not None:
            own = own * np.sqrt(factor.queries.weights).reshape(-1, *[1] * len(factor.attributes))
        spread = own[(slice(None), *(place[axis] for axis in factor.attributes))]
        rows = (rows[:, None] * spread[None]).reshape(-1, *sizes)
    return rows


def piece(tensor: Array, kept: Subset, measures: tuple[Measure, ...]) -> Array:
    """Piece of queries (count, *sizes) on the attributes kept, by inclusion and exclusion of means."""
    result = np.zeros((1,) * tensor.ndim)
    for held in subsets(kept):
        mean = tensor
        for axis, measure in enumerate(measures):
            if axis not in held:
                weights = measure.vector().reshape([-1 if at == axis else 1 for at in range(len(measures))])
                mean = (mean * weights).sum(axis=1 + axis, keepdims=True)
        result = result + (-1) ** (len(kept) - len(held)) * mean
    return result  # (count, size of each attribute kept or 1)


def brute_grams(work: rs.Workload, measures: tuple[Measure, ...]) -> dict[Subset, Array]:
    """Gram of each block, from every query of every table."""
    grams: dict[Subset, Array] = {}
    for group in work.groups():
        tensor = query_tensors(group, work.schema.sizes)
        for kept in subsets(group.attributes):
            rows = piece(tensor, kept, measures).reshape(len(tensor), -1)
            grams[kept] = grams.get(kept, 0.0) + rows.T @ rows
    return grams


def block_grams(parts: Decomposition) -> dict[Subset, Array]:
    """The same from a decomposition; a subset that is there twice fails."""
    grams: dict[Subset, Array] = {}
    squares = [root.T @ root for root in parts.roots]
    for blocks in parts.simple:
        for subset, numbers, coefficient in zip(
            blocks.subsets.tolist(), blocks.pieces, blocks.coefficients, strict=True
        ):
            assert tuple(subset) not in grams
            grams[tuple(subset)] = coefficient * reduce(np.kron, (squares[at] for at in numbers), np.eye(1))
    for block in parts.mixed:
        assert block.attributes not in grams
        total = 0.0
        for term in block.terms:
            order = [place for places, _ in term.pieces for place in places]
            sizes = [size for _, number in term.pieces for size in parts.pieces[number].sizes]
            gram = reduce(np.kron, (squares[number] for _, number in term.pieces), np.eye(1))
            back = np.argsort(order)
            gram = gram.reshape([*sizes, *sizes]).transpose([*back, *(len(back) + back)])
            cells = math.prod(sizes)
            total = total + term.coefficient * gram.reshape(cells, cells)
        grams[block.attributes] = total
    return grams


SCHEMA = rs.Schema.of_sizes([3, 2, 4, 3, 1])
RANDOM = np.random.default_rng(11)

WORKLOADS = {
    "total": rs.table(SCHEMA),
    "marginals": rs.marginals(SCHEMA, up_to=3),
    "prefix": rs.all_tables(SCHEMA, (1, 2), rs.prefix),
    "reversed": rs.all_tables(SCHEMA, 2, rs.ranges, attributes=["a3", "a2", "a0"]),
    "repeated": 2.5 * rs.marginals(SCHEMA, ways=2) + rs.marginals(SCHEMA, ways=2) + rs.table(SCHEMA, ["a1"]),
    "families": rs.table(SCHEMA, a0=rs.prefix, a2=rs.identity)
    + rs.table(SCHEMA, a2=rs.width(2), a0=rs.circular),
    "joint": rs.all_tables(SCHEMA, 2, rs.affine, attributes=["a2", "a0", "a3"]),
    "joint and more": rs.table(SCHEMA, {("a3", "a0"): rs.abs_diff, "a1": rs.total, "a2": rs.buckets(2)})
    + 0.1 * rs.table(SCHEMA, {("a0", "a2"): rs.affine, "a3": rs.prefix}),
    "mixture": rs.all_tables(SCHEMA, 1, rs.prefix)
    + 3.0 * rs.all_tables(SCHEMA, 2, rs.affine)
    + rs.linear(SCHEMA, ["a2", "a1"], RANDOM.integers(-2, 3, (3, 8)), [0.5, 1.0, 8.0]),
    "three at once": rs.linear(SCHEMA, ["a3", "a0", "a1"], RANDOM.integers(-2, 3, (4, 18))),
    "one cell": rs.table(SCHEMA, ["a4", "a1"]) + rs.table(SCHEMA, a4=rs.prefix),
}


def signed(size: int) -> Measure:
    """A measure with a negative weight, where there is more than one cell."""
    weights = np.r_[-1.0, 1.5 + RANDOM.random(size - 1)] if size > 1 else np.ones(1)
    return Measure.of(weights / weights.sum())


MEASURES = {
    "uniform": uniform(WORKLOADS["total"]),
    "positive": tuple(Measure.of(RANDOM.dirichlet(np.ones(size))) for size in SCHEMA.sizes),
    "signed": tuple(signed(size) for size in SCHEMA.sizes),
}


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_grams_of_the_blocks_are_those_of_all_pieces_of_all_queries(name, measure):
    work, measures = WORKLOADS[name], MEASURES[measure]
    expected = brute_grams(work, measures)
    found = block_grams(decompose(work, measures))
    largest = max(float(np.abs(gram).max()) for gram in expected.values())
    for subset in expected.keys() | found.keys():
        wanted = expected.get(subset, np.zeros((1, 1)))
        if subset in found:
            np.testing.assert_allclose(found[subset], wanted, atol=1e-12 * largest)
        else:
            assert np.abs(wanted).max() < 1e-12 * largest


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("name", WORKLOADS)
def test_pieces_sum_to_the_query(name, measure):
    for group in WORKLOADS[name].groups():
        tensor = query_tensors(group, SCHEMA.sizes)
        pieces = [piece(tensor, kept, MEASURES[measure]) for kept in subsets(group.attributes)]
        np.testing.assert_allclose(sum(pieces) + np.zeros_like(tensor), tensor, atol=1e-12)


@pytest.mark.parametrize("measure", MEASURES)
def test_different_subsets_span_independent_spaces(measure):
    """The ranks of all residual spaces add up to the number of cells, and their sum is everything."""
    sizes, measures = SCHEMA.sizes, MEASURES[measure]
    cells = np.eye(math.prod(sizes)).reshape(-1, *sizes)
    rows, ranks = [], 0
    for kept in subsets(tuple(range(len(sizes)))):
        own = np.broadcast_to(piece(cells, kept, measures), cells.shape).reshape(len(cells), -1)
        rank = np.linalg.matrix_rank(own, tol=1e-9)
        assert rank == math.prod(sizes[axis] - 1 for axis in kept)
        ranks += rank
        rows.append(own)
    assert ranks == len(cells) == np.linalg.matrix_rank(np.concatenate(rows), tol=1e-9)


def test_the_pieces_of_a_run_are_solved_once_whatever_its_number_of_tables():
    parts = decompose(rs.all_tables(rs.Schema.of_sizes([10] * 40), (1, 2), rs.prefix))
    assert len(parts.pieces) == 1
    assert [len(blocks.subsets) for blocks in parts.simple] == [1, 40, 780]
    assert parts.mixed == ()


def test_equal_sizes_with_different_families_have_different_pieces():
    schema = rs.Schema.of_sizes([5, 5, 5])
    parts = decompose(rs.table(schema, a0=rs.prefix, a1=rs.identity, a2=rs.prefix))
    numbers = {tuple(b.subsets[row]): b.pieces[row, 0] for b in parts.simple[1:2] for row in range(3)}
    assert numbers[0,] == numbers[2,] != numbers[1,]


@pytest.mark.parametrize("size", [3, 4, 10])
def test_families_that_ask_the_same_after_centring_share_a_piece(size):
    schema = rs.Schema.of_sizes([size, size])
    parts = decompose(rs.table(schema, {("a0", "a1"): rs.affine}))
    (single,) = (blocks for blocks in parts.simple if blocks.subsets.shape[1] == 1)
    assert single.subsets.tolist() == [[0], [1]]
    assert single.pieces.tolist() == [[0], [0]]


def test_tags_keep_equal_attributes_apart():
    schema = rs.Schema.of_sizes([4, 4, 4])
    work = rs.all_tables(schema, (1, 2), rs.prefix)
    assert len(decompose(work, tags=[0, 0, 0]).pieces) == 1
    assert len(decompose(work, tags=[0, 1, 1]).pieces) == 2
    pairs = rs.all_tables(schema, 2, rs.affine)
    assert len(decompose(pairs, tags=[0, 1, 1]).pieces) == 4
    assert len(decompose(pairs, tags=[0, 0, 0]).pieces) == 2


@pytest.mark.parametrize("tilt", [1e-3, 1e-12])
def test_measures_that_are_not_quite_equal_keep_their_pieces_apart(tilt):
    schema = rs.Schema.of_sizes([4, 4])
    even, tilted = np.full(4, 0.25), np.array([0.25 + tilt, 0.25 - tilt, 0.25, 0.25])
    work = rs.all_tables(schema, (1, 2), rs.prefix)
    assert len(decompose(work, [Measure.of(even), Measure.of(even)]).pieces) == 1
    parts = decompose(work, [Measure.of(even), Measure.of(tilted)])
    assert len(parts.pieces) == 2
    for root, measure in zip(parts.roots, (even, tilted), strict=True):
        np.testing.assert_allclose(root @ measure, 0, atol=1e-15)


@pytest.mark.parametrize("weight", [1.0, 1e-13, 1e-200])
def test_what_light_queries_ask_is_not_mistaken_for_what_others_ask(weight):
    schema = rs.Schema.of_sizes([4, 4])
    one = rs.linear(schema, ["a0"], [[1, 0, 0, 0], [0, 1, -1, 0]], [1, weight])
    two = rs.linear(schema, ["a1"], [[1, 0, 0, 0], [0, 0, 1, -1]], [1, weight])
    parts = decompose(one + two)
    assert len(parts.pieces) == 2
    for root, light in zip(parts.roots, ([0, 1, -1, 0], [0, 0, 1, -1]), strict=True):
        assert np.linalg.matrix_rank(np.vstack([root / np.linalg.norm(root, axis=1)[:, None], light])) == 2


@pytest.mark.parametrize(
    "work",
    [
        rs.table(SCHEMA, a0=rs.total),
        rs.table(SCHEMA, ["a4"]),
        rs.table(SCHEMA, {("a4", "a0"): rs.abs_diff, "a2": rs.total}),
        rs.linear(SCHEMA, ["a0", "a1"], np.full((2, 6), 0.1 + 0.2)),
    ],
)
def test_what_vanishes_has_no_block(work):
    parts = decompose(work)
    found = [tuple(row) for blocks in parts.simple for row in blocks.subsets.tolist()]
    found += [block.attributes for block in parts.mixed]
    assert set(found) <= {(), (0,)}
    asked = brute_grams(work, uniform(work)).get((0,), np.zeros((1, 1)))
    assert ((0,) in found) == (np.abs(asked).max() > 1e-9)


def test_almost_constant_queries_get_no_more_directions_than_they_have():
    rows = np.ones((4, 3)) + 1e-9 * np.outer([1, 2, 3, 4], [1, -1, 0])
    (number,) = {
        number
        for blocks in decompose(rs.linear(SCHEMA, ["a0"], rows)).simple[1:]
        for number in blocks.pieces.ravel()
    }
    assert len(decompose(rs.linear(SCHEMA, ["a0"], rows)).roots[number]) == 1


def test_blocks_that_differ_by_a_factor_have_one_signature():
    schema = rs.Schema.of_sizes([3] * 6)
    heavy = 7.0 * rs.table(schema, {("a0", "a1"): rs.affine}) + 7.0 * rs.table(
        schema, a0=rs.prefix, a1=rs.prefix
    )
    light = rs.table(schema, {("a2", "a3"): rs.affine}) + rs.table(schema, a2=rs.prefix, a3=rs.prefix)
    other = rs.table(schema, {("a4", "a5"): rs.affine}) + 2.0 * rs.table(schema, a4=rs.prefix, a5=rs.prefix)
    found = {block.attributes: signature(block) for block in decompose(heavy + light + other).mixed}
    assert found[0, 1][0] == found[2, 3][0] != found[4, 5][0]
    assert found[0, 1][1] == pytest.approx(7 * found[2, 3][1], rel=1e-12)


def test_the_order_of_a_tables_attributes_changes_no_block():
    one = rs.table(SCHEMA, a0=rs.prefix, a2=rs.ranges, a3=rs.identity)
    two = rs.table(SCHEMA, a3=rs.identity, a0=rs.prefix, a2=rs.ranges)
    grams = [block_grams(decompose(work)) for work in (one, two)]
    assert grams[0].keys() == grams[1].keys()
    for subset, gram in grams[0].items():
        np.testing.assert_allclose(gram, grams[1][subset], rtol=1e-12)


def test_every_subset_of_a_table_is_a_block_once():
    parts = decompose(rs.marginals(SCHEMA, ways=3, attributes=["a3", "a0", "a2", "a1"]))
    found = [tuple(row) for blocks in parts.simple for row in blocks.subsets.tolist()]
    assert sorted(found) == sorted(set(product_subsets(4, 3)))


def product_subsets(width: int, most: int) -> list[Subset]:
    chosen = (tuple(np.flatnonzero(bits).tolist()) for bits in product((0, 1), repeat=width))
    return [subset for subset in chosen if len(subset) <= most]
