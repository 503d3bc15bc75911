"""Attributes that a workload treats alike, and the slope of the cost in the weights that centre them."""

import numpy as np
import pytest

import residua as rs
from residua.decompose import decompose, uniform
from residua.methods.blocks import Optimal, solve_blocks
from residua.methods.scales import single_attribute as scales_centring
from residua.methods.scales.query_pieces import Capped, Orbits
from residua.methods.scales.single_attribute import Centring
from residua.solve.newton import newton_steps
from residua.workload.symmetry import attribute_orbits

sizes = rs.Schema.of_sizes


def orbits(work, marks):
    return attribute_orbits(work.schema, work.parts, marks)


def orbits_of(work, marks):
    layers = solve_blocks(decompose(work), work.schema.sizes, Optimal(), 1e-3).strategy.layers
    return Orbits.of_blocks(work, marks, layers)


def test_all_marginals_on_equal_attributes_have_one_kind_of_block_for_each_size():
    orbits = orbits_of(rs.marginals(sizes([10] * 30), up_to=3), [1.0] * 4)
    assert sorted(orbits.many.tolist()) == [1, 30, 435, 4060]


@pytest.mark.parametrize(
    ("work", "marks", "kinds"),
    [
        (rs.marginals(sizes([2, 3, 2]), ways=2), [1.0], [0, 1, 0]),
        (
            rs.marginals(sizes([2, 2, 2]), ways=1) + rs.table(sizes([2, 2, 2]), a1=rs.prefix),
            [1.0, 1.0],
            [0, 1, 0],
        ),
        (rs.marginals(sizes([2, 2]), ways=1), [None], [0, 1]),
        (
            rs.table(sizes([2, 2, 2]), ["a0", "a1"]) + rs.table(sizes([2, 2, 2]), ["a1", "a2"]),
            [1.0, 1.0],
            [0, 1, 0],
        ),
        (
            rs.table(sizes([2, 2, 2]), ["a0", "a1"]) + rs.table(sizes([2, 2, 2]), ["a1", "a2"]),
            [1.0, 2.0],
            [0, 1, 2],
        ),
        (rs.all_tables(sizes([3, 3, 3]), ways=2, family=rs.affine), [1.0], [0, 0, 0]),
        (rs.table(sizes([3, 3, 2]), {("a0", "a1"): rs.abs_diff}), [1.0], [0, 0, -1]),
    ],
)
def test_attributes_are_of_one_kind_where_exchanging_them_changes_nothing(work, marks, kinds):
    assert orbits(work, marks).tolist() == kinds


def test_a_run_that_leaves_some_tables_out_tells_their_attributes_apart():
    whole = rs.marginals(sizes([2] * 4), ways=2)
    part = whole.parts[0]
    without_one = rs.Workload(whole.schema, (part.take(np.arange(1, 6)),))  # all pairs but a0 x a1
    assert orbits(without_one, [1.0]).tolist() == [0, 0, 1, 1]
    chain = rs.Workload(whole.schema, (part.take(np.array([0, 3, 5])),))  # a0-a1, a1-a2, a2-a3
    assert orbits(chain, [1.0]).tolist() == [0, 1, 2, 3]


def test_queries_that_are_not_symmetric_tell_their_two_attributes_apart():
    rows = np.zeros((1, 9))
    rows[0, 1] = 1.0
    assert orbits(rs.linear(sizes([3, 3]), ("a0", "a1"), rows), [1.0]).tolist() == [0, 1]


def test_the_blocks_of_a_kind_are_counted_without_listing_them():
    work = rs.all_tables(sizes([3, 4, 3, 4, 3]), ways=(1, 2, 3), family=rs.prefix)
    orbits = orbits_of(work, [1.0] * 3)
    counted = [orbits.size(key) for key in orbits.numbers]
    assert counted == orbits.many.tolist()
    assert set(Capped(work, [1.0] * 3, orbits).gathered(uniform(work))[0]) == set(orbits.numbers)


def test_the_slope_in_the_weights_that_centre_is_a_derivative(monkeypatch):
    monkeypatch.setattr(scales_centring, "INNER_GAP", 1e-10)
    schema = sizes([3, 2])
    work = rs.all_tables(schema, ways=(1, 2), family=rs.prefix) + rs.table(
        schema, a1=rs.identity, a0=rs.ranges
    )
    caps = [1.0, 2.0, 1.5]
    asked = Capped(work, caps, orbits_of(work, caps))
    problem = Centring(asked, None)
    x = 0.05 * np.random.default_rng(0).normal(size=problem.weights.count)
    _, slope = problem.value(x)
    for place in range(len(x)):
        step = 1e-5 * (np.arange(len(x)) == place)
        difference = (problem.value(x + step)[0] - problem.value(x - step)[0]) / 2e-5
        assert slope[place] == pytest.approx(difference, rel=1e-4)


class _Logarithms:
    """`-sum a_i log w_i`, least on a simplex where w is in proportion to a."""

    def __init__(self, amounts, weights):
        self.amounts, self.weights = amounts, weights

    @property
    def slopes(self):
        return self.amounts / self.weights

    def hessian_times(self, direction):
        return self.hessian_diagonal() * direction

    def hessian_diagonal(self):
        return self.amounts / self.weights**2


def test_steps_keep_every_sum_and_end_at_the_optimum_of_each_piece():
    amounts, pieces = np.array([1.0, 3.0, 2.0, 2.0, 4.0]), [2, 3]
    seen = []

    def look(weights):
        seen.append(weights)
        return _Logarithms(amounts, weights)

    start = np.array([0.5, 0.5, 1 / 3, 1 / 3, 1 / 3])
    newton_steps(look, start, np.array([4.0, 4, 8, 8, 8]), 1.0, 1e-8, lambda: len(seen) < 30, pieces)
    for weights in seen:
        assert weights[:2].sum() == pytest.approx(1)
        assert weights[2:].sum() == pytest.approx(1)
    assert seen[-1] == pytest.approx([0.25, 0.75, 0.25, 0.25, 0.5], rel=1e-5)
