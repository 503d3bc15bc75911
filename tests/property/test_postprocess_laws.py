"""Laws of post-processing on random tables: whole numbers add up, nothing is negative, margins agree."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import residua as rs
from residua.postprocess.facts import Facts
from residua.postprocess.margins import controlled, rounded_tables, shared_out, with_margins, with_total
from residua.postprocess.pieces import Stack, TableSet, as_subsets

SMALL = settings(max_examples=60)


@st.composite
def joint_tables(draw, ways):
    """Margins on all sets of so many attributes of one random, often sparse, non-negative joint table."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=ways, max_size=4))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    joint = generator.gamma(0.3, draw(st.sampled_from([0.1, 3.0, 1000.0])), sizes)
    joint *= generator.random(sizes) < draw(st.sampled_from([0.2, 1.0]))
    from itertools import combinations

    stacks = []
    for row in combinations(range(len(sizes)), ways):
        gone = tuple(at for at in range(len(sizes)) if at not in row)
        stacks.append(Stack(as_subsets([row]), joint.sum(axis=gone)[None]))
    return rs.Schema.of_sizes(sizes), TableSet(tuple(stacks))


@SMALL
@given(joint_tables(2))
def test_rounded_two_way_tables_are_whole_and_add_up_exactly(made):
    schema, tables = made
    found = rounded_tables(tables, Facts.of((), schema))
    assert found.disagreement() == 0.0
    assert found.marginal(()) == np.rint(tables.marginal(()))
    for stack, before in zip(found.stacks, tables.stacks, strict=True):
        assert np.array_equal(stack.cells, np.rint(stack.cells))
        assert stack.cells.min() >= 0
        assert np.abs(stack.cells - before.cells).max() <= 3


@settings(max_examples=20)
@given(joint_tables(3))
def test_rounded_three_way_tables_add_up_to_the_same_total_and_one_way_margins(made):
    schema, tables = made
    found = rounded_tables(tables, Facts.of((), schema))
    for stack in found.stacks:
        assert np.array_equal(stack.cells, np.rint(stack.cells))
        assert stack.cells.min() >= 0
        (row,) = stack.rows()
        for axis, at in enumerate(row):
            others = tuple(1 + place for place in range(3) if place != axis)
            assert np.array_equal(stack.cells.sum(axis=others)[0], found.marginal((at,)))


@SMALL
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 6))
def test_controlled_rounding_of_a_table_with_whole_margins_moves_no_cell_by_one_or_more(seed, n, m):
    generator = np.random.default_rng(seed)
    whole = generator.poisson(2.0, (n, m)).astype(float)
    cells = with_margins(generator.normal(2, 2, (1, n, m)), whole.sum(axis=1)[None], whole.sum(axis=0)[None])[
        0
    ]
    found = controlled(cells, np.ones((n, m), dtype=bool), whole.sum(axis=1), whole.sum(axis=0))
    assert np.array_equal(found.sum(axis=1), whole.sum(axis=1))
    assert np.array_equal(found.sum(axis=0), whole.sum(axis=0))
    assert np.abs(found - cells).max() < 1 + 1e-5


@SMALL
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.integers(0, 10**6))
def test_shares_are_whole_and_sum_to_the_total(cells, total):
    found = shared_out(np.array(cells), np.ones(len(cells), dtype=bool), total)
    assert found.sum() == total
    assert found.min() >= 0


@SMALL
@given(st.integers(0, 2**32), st.integers(1, 12), st.floats(0, 1e6))
def test_vectors_with_a_total_keep_their_order(seed, cells, total):
    values = np.random.default_rng(seed).normal(0, 100, (1, cells))
    found = with_total(values, np.array([total]))
    assert found.min() >= 0
    assert abs(found.sum() - total) <= 1e-9 * max(1.0, total)
    assert (np.diff(found[0][np.argsort(values[0])]) >= -1e-9).all()


@SMALL
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 9), st.sampled_from([1e-3, 1.0, 1e6]))
def test_tables_with_margins_have_them(seed, n, m, scale):
    generator = np.random.default_rng(seed)
    table = generator.gamma(0.2, scale, (n, m)) * (generator.random((n, m)) < 0.5)
    noisy = table + generator.normal(0, 1, (n, m))
    found = with_margins(noisy[None], table.sum(axis=1)[None], table.sum(axis=0)[None])[0]
    allowed = 2e-8 + 1e-12 * table.sum()
    assert found.min() >= 0
    assert np.abs(found.sum(axis=1) - table.sum(axis=1)).max() <= allowed
    assert np.abs(found.sum(axis=0) - table.sum(axis=0)).max() <= allowed
