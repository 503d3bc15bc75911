"""What every kind of plan costs, by brute force: each cell, or each pair of cells, in exact fractions.

The oracle knows nothing of strategies. It spreads what the batches measure over all joint cells, checks that
a record changes just that in what is released, and adds up what the noise makes of it (claims I-005, H-001,
P-030).
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import cache, reduce
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

import residua as rs
from residua.answering.coarsened import Coarsened
from residua.answering.protocol import Answerer
from residua.kernel.cost import added_cost, replaced_cost
from residua.kernel.measurement import Measurement

SCHEMA = rs.Schema.of_sizes([3, 4, 2])
TINY = rs.Schema.of_sizes([2, 3])
ALIKE = rs.Schema.of_sizes([3] * 4)
BUDGETS = {"gaussian": rs.zcdp("0.7"), "laplace": rs.pure_dp("1.3")}
NEIGHBOURS = ("add_remove", "replace_one")

PREFIXES = rs.all_tables(SCHEMA, (1, 2), rs.prefix)
ALONE = rs.all_tables(SCHEMA, 1, rs.prefix)
MARGINALS = rs.marginals(SCHEMA, up_to=2)
# Blocks of one batch with noise of their own, whose order is not that of the attributes.
UNEVEN = (
    1e8 * rs.table(ALIKE, ["a0"])
    + rs.table(ALIKE, ["a1"])
    + 1e4 * rs.table(ALIKE, ["a2"])
    + 1e8 * rs.table(ALIKE, ["a3"])
)
CONDITIONS = rs.sql(
    SCHEMA,
    "SELECT COUNT(*) FROM t WHERE a0 >= 1 OR a1 = 0;"
    "SELECT a2, COUNT(*) FROM t WHERE NOT (a0 = 1 AND a1 = 1) GROUP BY a2",
)
BESIDE = rs.sql(SCHEMA, "SELECT COUNT(*) FROM t WHERE a0 >= 1 OR a1 = 0 OR a2 = 0") + rs.marginals(
    SCHEMA, up_to=1
)
# Differences: two columns of opposite signs differ by four times the square of one.
SIGNED = rs.linear(SCHEMA, ("a0",), [[1, -1, 0]]) + rs.linear(SCHEMA, ("a1",), [[1, 1, -1, -1]])
UNLIKE = rs.table(SCHEMA, {("a0", "a1"): rs.affine}) + rs.table(SCHEMA, ["a2"])
OVERLAPPING = rs.all_tables(TINY, 1, rs.prefix) + rs.table(TINY, {("a0", "a1"): rs.affine})
CROSSED = rs.table(SCHEMA, {"a0": rs.prefix, "a1": rs.prefix}) + rs.table(
    SCHEMA, {"a1": rs.ranges, "a2": rs.identity}
)

CASES: dict[str, tuple[str, str, str, rs.Workload]] = {
    # what is made, noise, method, workload
    "blocks": ("independent", "gaussian", "querysmasher", PREFIXES),
    "blocks under best weights": ("independent", "gaussian", "smasher", CROSSED),
    "blocks of marginals": ("independent", "gaussian", "residualplanner", MARGINALS),
    "blocks of differences": ("independent", "gaussian", "querysmasher", SIGNED),
    "uneven blocks": ("independent", "gaussian", "querysmasher", UNEVEN),
    "fourier": ("independent", "gaussian", "fourier", PREFIXES),
    "overlap": ("coupled", "gaussian", "smasher", OVERLAPPING),
    "dense": ("kronecker", "gaussian", "dense", PREFIXES),
    "product": ("kronecker", "gaussian", "hdmm-kron", PREFIXES),
    "wavelet": ("kronecker", "gaussian", "wavelet", PREFIXES),
    "nested": ("nested", "gaussian", "hdmm-union", PREFIXES),
    "nested marginals": ("nested", "gaussian", "hdmm-marginals", MARGINALS),
    "uneven marginals": ("nested", "gaussian", "hdmm-marginals", UNEVEN),
    "union": ("diagonal", "gaussian", "hdmm-union", CROSSED),
    "union of joint families": ("diagonal", "gaussian", "hdmm-union", UNLIKE),
    "union of differences": ("independent", "gaussian", "hdmm-union", SIGNED),
    "by kinds": ("coarsened kronecker", "gaussian", "auto", CONDITIONS),
    "by kinds, blocks": ("coarsened independent", "gaussian", "querysmasher", CONDITIONS),
    "by kinds, nested": ("coarsened nested", "gaussian", "hdmm-union", CONDITIONS),
    "by kinds beside cells": ("coarsened independent, independent", "gaussian", "querysmasher", BESIDE),
    "laplace product": ("kronecker", "laplace", "hdmm-kron", PREFIXES),
    "laplace wavelet": ("kronecker", "laplace", "wavelet", PREFIXES),
    "laplace nested": ("nested", "laplace", "hdmm-union", ALONE),
    "laplace uneven marginals": ("nested", "laplace", "hdmm-marginals", UNEVEN),
    "laplace union": ("diagonal", "laplace", "hdmm-union", UNLIKE),
    "laplace by kinds": ("coarsened kronecker", "laplace", "hdmm-kron", CONDITIONS),
    "laplace by kinds beside cells": ("coarsened nested, kronecker", "laplace", "hdmm-union", BESIDE),
}


def structure(answerer: Answerer) -> str:
    """What was made, by the name of what answers it; with classes of cells, by those of the parts."""
    if isinstance(answerer, Coarsened):
        return f"coarsened {', '.join(map(structure, answerer.answerers))}"
    return type(answerer).__name__.lower()


@cache
def planned(name: str, neighbours: Any) -> rs.Plan:
    made, law, method, work = CASES[name]
    few = 0.0 if made == "coupled" else 1e9  # so few cells would be solved as one block
    with mock.patch("residua.methods.smasher.UNION_WORK", few):
        return rs.plan(work, BUDGETS[law], method=method, unit=rs.Unit(neighbours=neighbours))


def spread(batch: Measurement, sizes: tuple[int, ...]) -> Iterator[tuple[NDArray[Any], Fraction]]:
    """Whole numbers that each block measures of all joint cells, (rows, cells), and its noise's parameter."""
    cells = np.indices(sizes).reshape(len(sizes), -1)
    codes = list(cells)
    for part in batch.derived:
        kinds = [own.classes[cells[at]] for at, own in zip(part.attributes, part.partitions, strict=True)]
        codes[part.place] = part.joint.classes[
            np.ravel_multi_index(kinds, [k.count for k in part.partitions])
        ]
    whole = reduce(np.kron, batch.matrices, np.ones((1, 1), dtype=np.int64)).astype(object)
    parameters = batch.parameters
    for subset, owner in zip(batch.subsets.tolist(), batch.owners.tolist(), strict=True):
        at = np.zeros(cells.shape[1], dtype=np.int64)
        for attribute, size in zip(subset, batch.sizes, strict=True):
            at = at * size + codes[attribute]
        yield batch.multiplier * whole[:, at], parameters[owner]


def true_cost(plan: rs.Plan, neighbours: str) -> Fraction:
    """The dearest cell's cost, or the dearest pair's."""
    costs: Any = Fraction(0)
    for batch in plan.batches:
        for rows, parameter in spread(batch, plan.schema.sizes):
            change = rows[:, :, None] - (rows[:, None, :] if neighbours == "replace_one" else 0)
            sizes = abs(change) if batch.law == "laplace" else change * change
            costs = costs + sizes.sum(axis=0) * (1 / parameter)
    return Fraction(costs.max())


def released(plan: rs.Plan, codes: NDArray[Any], seed: int) -> list[NDArray[np.int64]]:
    """The numbers that are measured, (blocks, rows) of each batch."""
    release = rs.measure(plan, codes, ledger=None, noise=rs.simulated(seed=seed))
    return [np.asarray(values) for values in release.measurements.values]


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("name", CASES)
def test_no_cell_and_no_pair_of_cells_costs_more_than_the_budget(name, neighbours):
    plan = planned(name, neighbours)
    assert structure(plan.strategy.answerer) == CASES[name][0]
    assert plan.strategy.law == CASES[name][1]
    allowed, found = plan.unit.allowance(plan.budget), true_cost(plan, neighbours)
    assert (1 - 2e-9) * allowed < found <= allowed


@pytest.mark.parametrize("name", CASES)
def test_what_a_strategy_says_of_its_costs_is_never_too_little(name):
    plan = planned(name, "add_remove")
    found = true_cost(plan, "add_remove")
    assert found <= added_cost(plan.batches) <= found * (1 + Fraction(1, 2**50))
    assert plan.strategy.cost() == pytest.approx(float(plan.strategy.exact_cost()), rel=1e-12)
    found = true_cost(plan, "replace_one")
    assert found <= replaced_cost(plan.batches) <= found * (1 + Fraction(1, 2**50))


@pytest.mark.parametrize("name", CASES)
def test_a_record_changes_what_is_released_by_what_the_batches_measure_of_its_cell(name):
    plan = planned(name, "add_remove")
    cells = np.indices(plan.schema.sizes).reshape(len(plan.schema.sizes), -1).T
    without = released(plan, cells[:0], 1)
    measured = [[rows for rows, _ in spread(batch, plan.schema.sizes)] for batch in plan.batches]
    for number, cell in enumerate(cells):
        for before, after, blocks in zip(without, released(plan, cell[None], 1), measured, strict=True):
            change = np.array([rows[:, number] for rows in blocks], dtype=np.int64)
            np.testing.assert_array_equal(after - before, change)


@pytest.mark.parametrize("name", CASES)
def test_every_block_gets_the_noise_that_its_cost_rests_on(name):
    """As many draws as leave no doubt about a block that got another one's noise, where those differ."""
    plan = planned(name, "add_remove")
    nobody = np.zeros((0, len(plan.schema.sizes)), dtype=np.int64)
    drawn = [released(plan, nobody, seed) for seed in range(60)]
    for number, batch in enumerate(plan.batches):
        noise = np.array([values[number] for values in drawn], dtype=np.float64)  # (draws, blocks, rows)
        stated = [_variance(batch, parameter) for _, parameter in spread(batch, plan.schema.sizes)]
        found = (noise**2).mean(axis=(0, 2)) / stated
        doubt = 6 * np.sqrt((5 if batch.law == "laplace" else 2) / noise[:, 0].size)
        np.testing.assert_allclose(found, 1, atol=doubt)


def _variance(batch: Measurement, parameter: Fraction) -> float:
    if batch.law == "laplace":
        return float(0.5 / np.sinh(0.5 / float(parameter)) ** 2)
    return float(parameter) + 1 / 12


@pytest.mark.parametrize("name", ["uneven blocks", "uneven marginals"])
def test_uneven_tables_are_measured_in_another_order_than_their_noise_is_drawn(name):
    """And one that differs from its inverse, so that neither passes for the other."""
    orders = [np.argsort(batch.owners, kind="stable") for batch in planned(name, "add_remove").batches]
    assert any(not np.array_equal(order, np.argsort(order)) for order in orders)
