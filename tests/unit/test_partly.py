"""Some attributes in one matrix, the others centred (C-007)."""

import math

import numpy as np
import pytest

import residua as rs
from residua.methods.dense import dense
from residua.methods.effort import Account
from residua.methods.partly import partly
from residua.methods.smasher import smasher

SCHEMA = rs.Schema.of_sizes([3, 7, 2, 4])
WORKS = {
    "prefixes": rs.table(SCHEMA, a1=rs.prefix, a3=rs.prefix)
    + rs.table(SCHEMA, a0=rs.ranges, a1=rs.identity)
    + rs.table(SCHEMA, a2=rs.prefix, a3=rs.identity),
    "plain counts too": rs.table(SCHEMA, a1=rs.prefix, a3=rs.ranges)
    + 2.0 * rs.table(SCHEMA, ["a0", "a1"])
    + rs.table(SCHEMA, a2=rs.prefix, a1=rs.identity),
}


@pytest.mark.parametrize("name", WORKS)
def test_it_is_between_blocks_and_the_optimum_and_states_its_own_figures(name: str) -> None:
    work = WORKS[name]
    blocks, best = smasher(work, 1e-5), dense(work, 1e-5)
    allowed = 1e6  # less than the whole takes
    found = partly(work, blocks, 1e-5, None, Account(allowed))
    assert found is not None
    assert found.value is not None
    assert blocks.value is not None
    assert best.total(work) * (1 - 1e-4) <= found.total(work) <= found.value * (1 + 1e-9)
    assert found.value <= blocks.value * (1 + 1e-5)
    assert found.lower_bound <= found.value <= found.lower_bound * (1 + 1e-3)


def test_errors_are_those_of_dense_least_squares_over_all_cells() -> None:
    work = WORKS["prefixes"]
    found = partly(work, smasher(work, 1e-5), 1e-5, None, Account(1e6))
    assert found is not None
    grid = np.indices(SCHEMA.sizes).reshape(4, -1)
    measured = []
    for attributes, factors, noise in found.strategy.blocks().each():
        rows = np.ones((1, grid.shape[1]))
        for factor in factors:
            cells = np.ravel_multi_index([grid[at] for at in factor.attributes], factor.sizes)
            rows = (rows[:, None, :] * factor.matrix[:, cells][None]).reshape(-1, grid.shape[1])
        assert set(attributes) >= {at for factor in factors for at in factor.attributes}
        measured.append(rows / math.sqrt(noise))
    inverse = np.linalg.pinv(np.concatenate(measured), rcond=1e-10)
    for table in work.groups():
        asked = np.ones((1, grid.shape[1]))
        for factor in table.factors:
            own = factor.queries.matrix()[:, grid[factor.attributes[0]]]
            asked = (asked[:, None, :] * own[None]).reshape(-1, grid.shape[1])
        expected = np.sum((asked @ inverse) ** 2, axis=1)
        np.testing.assert_allclose(found.strategy.variances(table), expected, rtol=1e-8)


def test_nothing_is_made_where_no_work_is_left() -> None:
    work = WORKS["prefixes"]
    assert partly(work, smasher(work, 1e-4), 1e-4, None, Account(1.0)) is None
