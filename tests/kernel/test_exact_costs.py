"""What privacy rests on in strategies: costs in whole numbers; what has none is refused (I-005, H-001)."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from separate import separate_cost

import residua as rs
from residua.errors import FileFormatError
from residua.kernel.cost import added_cost
from residua.kernel.measurement import largest_size, matrix_cost
from residua.privacy.budgets import noise_law
from residua.privacy.unit import Person
from residua.strategy.manifest import strategy_from_manifest
from residua.strategy.rounding import rebudgeted
from residua.strategy.strategy import batches_of

SCHEMA = rs.Schema.of_sizes([3, 2])
WORK = rs.marginals(SCHEMA, up_to=2)
METHODS = {
    "blocks": ("querysmasher", rs.zcdp(1)),
    "product": ("identity", rs.zcdp(1)),
    "nested": ("hdmm-marginals", rs.zcdp(1)),
    "union": ("hdmm-union", rs.zcdp(1)),
    "laplace product": ("hdmm-kron", rs.pure_dp(1)),
    "laplace nested": ("hdmm-marginals", rs.pure_dp(1)),
}


def strategy(name):
    method, budget = METHODS[name]
    return rs.plan(WORK, budget, method=method).strategy


@pytest.mark.parametrize("entry", [1, -3, 2**31, 2**40, -(2**62), 2**63 - 1, -(2**63)])
def test_column_costs_are_exact_whatever_64_bits_hold(entry):
    matrix = np.array([[1, entry], [2, entry], [-1, 7]], dtype=np.int64)
    columns = [[int(value) for value in column] for column in matrix.T]
    assert matrix_cost("gaussian", matrix) == max(sum(value**2 for value in column) for column in columns)
    assert matrix_cost("laplace", matrix) == max(sum(map(abs, column)) for column in columns)
    assert largest_size(matrix) == max(abs(value) for column in columns for value in column)


@pytest.mark.parametrize("name", METHODS)
def test_the_cost_of_a_strategy_is_that_of_its_integers_and_their_noise(name):
    found = strategy(name)
    assert found.exact_cost() == separate_cost(batches_of(found), replaced=False)
    assert found.cost() == pytest.approx(float(found.exact_cost()), rel=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_a_strategy_without_grains_has_no_exact_cost(name):
    real = replace(strategy(name), grain=None)
    with pytest.raises(ValueError, match="only an integer strategy"):
        real.exact_cost()
    with pytest.raises(rs.Infeasible, match="describes measurements made before"):
        batches_of(real)


@pytest.mark.parametrize("name", ["laplace product", "laplace nested"])
def test_laplace_noise_that_64_bits_do_not_hold_is_refused(name):
    with pytest.raises(rs.Infeasible, match="does not fit 64-bit integers"):
        rebudgeted(strategy(name), Fraction(1, 2**50), Person(rs.Unit()))


def test_a_layer_without_shares_cannot_be_measured():
    blocks = strategy("blocks")
    bare = replace(blocks, layers=tuple(replace(layer, shares=None) for layer in blocks.layers))
    with pytest.raises(ValueError, match="only an integer strategy"):
        batches_of(bare)


def test_costs_of_two_laws_do_not_add_up():
    both = [*batches_of(strategy("product")), *batches_of(strategy("laplace product"))]
    with pytest.raises(ValueError, match="do not add up"):
        added_cost(both)


@pytest.mark.parametrize("name", METHODS)
def test_a_manifest_keeps_the_exact_cost_and_names_a_law_that_is_known(name):
    found, arrays = strategy(name), {}
    manifest = found.to_manifest(arrays)
    assert strategy_from_manifest(manifest, arrays).exact_cost() == found.exact_cost()
    with pytest.raises(FileFormatError, match="'other'"):
        strategy_from_manifest(manifest | {"law": "other"}, arrays)


def test_a_law_is_one_of_two():
    assert [noise_law(name) for name in ("gaussian", "laplace")] == ["gaussian", "laplace"]
    with pytest.raises(FileFormatError, match="'cauchy'"):
        noise_law("cauchy")
